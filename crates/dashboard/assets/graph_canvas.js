// Draws a laid-out graph and moves the camera. What is on screen decides how: a few boxes get rounded
// corners, labels and curves from the canvas; thousands are pixels and lines of a `Raster`.

import { colors, fitCanvas, hideTooltip, mix, perFrame, pixelRatio, showTooltip } from './ui.js';
import { packed, Raster } from './raster.js';

const SCALE_MIN = 0.002;
const SCALE_MAX = 3;
const DETAIL_BOXES_MAX = 900;
const CURVES_MAX = 300;
const LABELS_MAX = 260;
const FAR_LABELS_MAX = 36;
/** Lines are thinned out while the camera moves so that they take about this long a frame. */
const LINES_MS = 6;
const LINES_AT_FIRST = 10000;
/** Height of the legend at the bottom, kept free when everything is shown. */
const LEGEND = 34;

export class GraphCanvas {
  /** `events`: select(item), toggle(item), describe(item) -> lines. */
  constructor(canvas, events) {
    Object.assign(this, { canvas, events, layout: null, selected: -1, hovered: -1 });
    this.context = canvas.getContext('2d', { alpha: false, willReadFrequently: true });
    this.raster = new Raster();
    this.camera = { x: 0, y: 0, scale: 1 };
    this.stride = 1;
    this.movedAt = -Infinity;
    this.draw = perFrame(() => this.paint());
    new ResizeObserver(() => this.draw()).observe(canvas);
    document.addEventListener('themechange', () => this.recolor());
    this.listen();
  }

  /** Shows a layout; the box of `anchor` keeps its place on the screen if it had one. */
  setLayout(layout, model, expanded, anchor) {
    const before = anchor === undefined ? null : this.boxOf(anchor);
    Object.assign(this, { layout, model, expanded });
    const n = layout.items.length;
    this.slots = new Map();
    for (let i = 0; i < n; i += 1) this.slots.set(layout.items[i], i);
    this.isOpen = Uint8Array.from(layout.items, (item) => (expanded.has(item) ? 1 : 0));
    this.onScreen = new Int32Array(n);
    this.isOnScreen = new Uint8Array(n);
    this.byBox = null;
    this.stride = Math.max(1, Math.ceil(layout.from.length / LINES_AT_FIRST));
    this.recolor();
    const after = before && this.boxOf(anchor);
    if (after) {
      this.camera.x += after.x - before.x;
      this.camera.y += after.y - before.y;
    }
    this.draw();
  }

  /** `color(item)` is the colour of a box; `shares(item)` of a closed scope: [[colour, share]…]. */
  setColors(color, shares) {
    Object.assign(this, { color, shares });
    this.recolor();
  }

  recolor() {
    if (!this.layout || !this.color) return;
    const n = this.layout.items.length;
    this.css = new Array(n);
    this.packed = new Uint32Array(n);
    const known = new Map();
    const { surface, scope, line } = colors();
    for (let i = 0; i < n; i += 1) {
      const item = this.layout.items[i];
      const css = this.isOpen[i]
        ? mix(surface, scope, Math.min(1, 0.35 + 0.22 * this.model.depth[item]))
        : this.color(item);
      this.css[i] = css;
      if (!known.has(css)) known.set(css, packed(css));
      this.packed[i] = known.get(css);
    }
    this.frameColor = packed(mix(line, colors().muted, 0.25));
    this.draw();
  }

  boxOf(item) {
    const i = this.slots?.get(item);
    if (i === undefined) return null;
    const [x, y, w, h] = this.layout.boxes.subarray(4 * i, 4 * i + 4);
    return { x, y, w, h };
  }

  /** Pixels of the canvas per unit of the layout. */
  get scale() {
    return this.camera.scale * pixelRatio();
  }

  select(item) {
    this.selected = item;
    this.draw();
  }

  /** Shows everything. */
  fit() {
    if (!this.layout) return;
    const { width, height } = this.layout;
    const scale = Math.min(
      (this.canvas.clientWidth - 24) / width,
      (this.canvas.clientHeight - 24 - LEGEND) / height,
      1.1,
    );
    Object.assign(this.camera, { x: width / 2, y: height / 2 + LEGEND / 2 / scale, scale: Math.max(SCALE_MIN, scale) });
    this.moved();
  }

  /** Brings the box of `item` to the middle, near enough to read it. */
  centre(item) {
    const box = this.boxOf(item);
    if (!box) return;
    this.camera.x = box.x + box.w / 2;
    this.camera.y = box.y + box.h / 2;
    const all = Math.min(this.canvas.clientWidth / (box.w + 60), this.canvas.clientHeight / (box.h + 60));
    this.camera.scale = Math.max(SCALE_MIN, Math.min(1.1, all, Math.max(this.camera.scale, 0.9)));
    this.moved();
  }

  /** Moves by CSS pixels. */
  pan(dx, dy) {
    this.camera.x -= dx / this.camera.scale;
    this.camera.y -= dy / this.camera.scale;
    this.moved();
  }

  /** Zooms about a point of the canvas in CSS pixels, or about its middle. */
  zoom(factor, px = this.canvas.clientWidth / 2, py = this.canvas.clientHeight / 2) {
    const before = this.world(px, py);
    this.camera.scale = Math.max(SCALE_MIN, Math.min(SCALE_MAX, this.camera.scale * factor));
    const after = this.world(px, py);
    this.camera.x += before.x - after.x;
    this.camera.y += before.y - after.y;
    this.moved();
  }

  moved() {
    this.movedAt = performance.now();
    clearTimeout(this.settled);
    this.settled = setTimeout(() => this.draw(), 160);
    this.draw();
  }

  world(px, py) {
    return {
      x: this.camera.x + (px - this.canvas.clientWidth / 2) / this.camera.scale,
      y: this.camera.y + (py - this.canvas.clientHeight / 2) / this.camera.scale,
    };
  }

  /** The innermost item at a point of the canvas, or -1. */
  hit(px, py) {
    if (!this.layout) return -1;
    const { x, y } = this.world(px, py);
    const { items, boxes } = this.layout;
    for (let i = items.length - 1; i >= 0; i -= 1) {
      const b = 4 * i;
      if (x >= boxes[b] && y >= boxes[b + 1] && x < boxes[b] + boxes[b + 2] && y < boxes[b + 1] + boxes[b + 3])
        return items[i];
    }
    return -1;
  }

  listen() {
    const { canvas } = this;
    let drag = null;
    canvas.addEventListener(
      'wheel',
      (event) => {
        event.preventDefault();
        const unit = event.deltaMode === 1 ? 20 : 1;
        this.zoom(Math.exp(-event.deltaY * unit * 0.0016), event.offsetX, event.offsetY);
      },
      { passive: false },
    );
    canvas.addEventListener('pointerdown', (event) => {
      if (event.button !== 0) return;
      drag = { x: event.clientX, y: event.clientY, far: false };
      try {
        canvas.setPointerCapture(event.pointerId);
      } catch {
        // The pointer is gone already.
      }
    });
    canvas.addEventListener('pointermove', (event) => {
      if (!drag) {
        this.hover(event);
        return;
      }
      const [dx, dy] = [event.clientX - drag.x, event.clientY - drag.y];
      if (!drag.far && Math.hypot(dx, dy) < 4) return;
      Object.assign(drag, { x: event.clientX, y: event.clientY, far: true });
      this.pan(dx, dy);
    });
    canvas.addEventListener('pointerup', (event) => {
      if (drag && !drag.far) this.click(this.hit(event.offsetX, event.offsetY));
      drag = null;
    });
    canvas.addEventListener('pointercancel', () => {
      drag = null;
    });
    canvas.addEventListener('pointerleave', () => this.unhover());
  }

  click(item) {
    this.events.select(item);
    if (item >= 0 && this.model.isScope(item)) this.events.toggle(item);
  }

  hover(event) {
    const item = this.hit(event.offsetX, event.offsetY);
    if (item < 0 || this.expanded.has(item)) {
      this.unhover();
      return;
    }
    this.hovered = item;
    showTooltip(event.clientX, event.clientY, this.events.describe(item));
  }

  unhover() {
    if (this.hovered >= 0) hideTooltip();
    this.hovered = -1;
  }

  paint() {
    const { canvas, context, raster } = this;
    fitCanvas(canvas);
    raster.resize(canvas.width, canvas.height);
    const palette = colors();
    raster.clear(packed(palette.surface));
    if (!this.layout || !this.packed) {
      raster.show(context);
      return;
    }
    const isMoving = performance.now() - this.movedAt < 150;
    const visible = this.cull();
    const closed = visible.closed;
    const isDetailed = closed <= DETAIL_BOXES_MAX && this.scale > 0.18;
    this.paintScopes(visible.total);
    const curves = isDetailed ? this.edgesOnScreen(CURVES_MAX) : null;
    if (!curves) this.paintLines(isMoving);
    if (!isDetailed) this.paintBoxes(visible.total);
    raster.show(context);
    if (curves) this.drawCurves(curves, palette);
    if (isDetailed) this.drawBoxes(visible.total, palette);
    this.drawScopeLabels(visible.total, palette);
    this.drawSelection(palette);
  }

  /** Collects what is on screen, in the order of the layout: scopes before what lies in them. */
  cull() {
    const { boxes, items } = this.layout;
    const { x, y } = this.camera;
    const half = { w: this.canvas.width / 2 / this.scale, h: this.canvas.height / 2 / this.scale };
    const [x0, x1, y0, y1] = [x - half.w, x + half.w, y - half.h, y + half.h];
    let total = 0;
    let closed = 0;
    this.isOnScreen.fill(0);
    for (let i = 0, b = 0; i < items.length; i += 1, b += 4) {
      if (boxes[b] > x1 || boxes[b + 1] > y1 || boxes[b] + boxes[b + 2] < x0 || boxes[b + 1] + boxes[b + 3] < y0)
        continue;
      this.onScreen[total] = i;
      total += 1;
      if (this.isOpen[i]) continue;
      closed += 1;
      this.isOnScreen[i] = 1;
    }
    return { total, closed };
  }

  get origin() {
    return {
      ox: this.canvas.width / 2 - this.camera.x * this.scale,
      oy: this.canvas.height / 2 - this.camera.y * this.scale,
    };
  }

  paintScopes(total) {
    const { boxes } = this.layout;
    const { ox, oy } = this.origin;
    const k = this.scale;
    for (let v = 0; v < total; v += 1) {
      const i = this.onScreen[v];
      if (!this.isOpen[i]) continue;
      const b = 4 * i;
      const [x0, y0] = [Math.round(ox + boxes[b] * k), Math.round(oy + boxes[b + 1] * k)];
      const [x1, y1] = [
        Math.round(ox + (boxes[b] + boxes[b + 2]) * k),
        Math.round(oy + (boxes[b + 1] + boxes[b + 3]) * k),
      ];
      this.raster.box(x0, y0, x1, y1, this.packed[i]);
      if (x1 - x0 > 10 && y1 - y0 > 10) this.raster.frame(x0, y0, x1, y1, this.frameColor);
    }
  }

  paintBoxes(total) {
    const { boxes } = this.layout;
    const { ox, oy } = this.origin;
    const k = this.scale;
    for (let v = 0; v < total; v += 1) {
      const i = this.onScreen[v];
      if (this.isOpen[i]) continue;
      const b = 4 * i;
      const x0 = Math.round(ox + boxes[b] * k);
      const y0 = Math.round(oy + boxes[b + 1] * k);
      const x1 = Math.max(x0 + 1, Math.round(ox + (boxes[b] + boxes[b + 2]) * k));
      const y1 = Math.max(y0 + 1, Math.round(oy + (boxes[b + 1] + boxes[b + 3]) * k));
      this.raster.box(x0, y0, x1, y1, this.packed[i]);
    }
  }

  /** Lines of the edges with an end on the screen; those that only cross it would hide what is there. */
  paintLines(isMoving) {
    const { boxes, from, to } = this.layout;
    const { ox, oy } = this.origin;
    const k = this.scale;
    const stride = isMoving ? this.stride : 1;
    const begin = performance.now();
    let touched = 0;
    for (let e = 0; e < from.length; e += stride) {
      if (!this.isOnScreen[from[e]] && !this.isOnScreen[to[e]]) continue;
      const [a, b] = [4 * from[e], 4 * to[e]];
      touched += this.raster.line(
        ox + (boxes[a] + boxes[a + 2] / 2) * k,
        oy + (boxes[a + 1] + boxes[a + 3]) * k,
        ox + (boxes[b] + boxes[b + 2] / 2) * k,
        oy + boxes[b + 1] * k,
        stride,
      );
    }
    const took = performance.now() - begin;
    const wanted = (took * stride) / LINES_MS;
    this.stride = Math.max(1, Math.min(64, Math.ceil(isMoving ? (wanted + this.stride) / 2 : wanted)));
    // The fuller the screen is of lines, the fainter is each.
    const density = (touched * stride) / (this.canvas.width * this.canvas.height);
    const strength = Math.max(0.012, Math.min(0.4, 0.14 / Math.max(0.05, density)));
    this.raster.blendLines(packed(colors().edge), strength);
  }

  /** The edges with an end on the screen, or null if they are more than `max`. */
  edgesOnScreen(max) {
    const { from, to } = this.layout;
    const found = [];
    for (let e = 0; e < from.length; e += 1) {
      if (!this.isOnScreen[from[e]] && !this.isOnScreen[to[e]]) continue;
      found.push(e);
      if (found.length > max) return null;
    }
    return found;
  }

  curve(e, arrow) {
    const { boxes, from, to } = this.layout;
    const { ox, oy } = this.origin;
    const { context, scale: k } = this;
    const [a, b] = [4 * from[e], 4 * to[e]];
    const [x0, y0] = [ox + (boxes[a] + boxes[a + 2] / 2) * k, oy + (boxes[a + 1] + boxes[a + 3]) * k];
    const [x1, y1] = [ox + (boxes[b] + boxes[b + 2] / 2) * k, oy + boxes[b + 1] * k];
    const bend = Math.max(Math.abs(y1 - y0) * 0.45, 12 * k);
    context.moveTo(x0, y0);
    context.bezierCurveTo(x0, y0 + bend, x1, y1 - bend, x1, y1);
    if (!arrow) return;
    context.moveTo(x1 - 3 * k, y1 - 6 * k);
    context.lineTo(x1, y1);
    context.lineTo(x1 + 3 * k, y1 - 6 * k);
  }

  drawCurves(list, palette) {
    const { context, scale: k } = this;
    const { bytes } = this.layout;
    // The edges of a selected box stand out from all others.
    const faint = this.slots.has(this.selected) ? 0.5 : 1;
    for (const isControl of [true, false]) {
      context.beginPath();
      for (const e of list) if (bytes[e] < 0 === isControl) this.curve(e, k > 0.5);
      context.strokeStyle = palette.edge;
      context.globalAlpha = (isControl ? 0.35 : 0.55) * faint;
      context.setLineDash(isControl ? [3 * k, 3 * k] : []);
      context.lineWidth = Math.max(0.7, Math.min(1.6, k));
      context.stroke();
    }
    context.setLineDash([]);
    context.globalAlpha = 1;
  }

  drawBoxes(total, palette) {
    const { context, scale: k } = this;
    const { boxes, items } = this.layout;
    const { ox, oy } = this.origin;
    const font = Math.min(12 * k, 26 * k * 0.46);
    let labels = font >= 6.5 ? LABELS_MAX : 0;
    context.textBaseline = 'middle';
    context.textAlign = 'center';
    context.font = `${font}px system-ui, sans-serif`;
    for (let v = 0; v < total; v += 1) {
      const i = this.onScreen[v];
      if (this.isOpen[i]) continue;
      const b = 4 * i;
      const [x, y, w, h] = [ox + boxes[b] * k, oy + boxes[b + 1] * k, boxes[b + 2] * k, boxes[b + 3] * k];
      const isScope = this.model.isScope(items[i]);
      const css = this.css[i];
      context.beginPath();
      context.roundRect(x, y, w, h, (isScope ? 4 : 12) * k);
      context.fillStyle = mix(palette.surface, css, isScope ? 0.3 : 0.24);
      context.fill();
      context.strokeStyle = css;
      context.lineWidth = Math.max(1, (isScope ? 1.6 : 1.1) * k);
      context.stroke();
      if (isScope && k > 0.3) this.drawShares(items[i], x, y, w, h);
      if (labels <= 0) continue;
      labels -= 1;
      context.fillStyle = palette.text;
      const label = this.model.label(items[i]);
      const suffix = isScope ? ` +${this.model.leaves[items[i]]}` : '';
      const fits = Math.max(3, Math.floor((w - 10 * k) / (font * 0.56)) - suffix.length);
      const text = label.length > fits ? `${label.slice(0, fits - 1)}…` : label;
      context.fillText(text + suffix, x + w / 2, y + h / 2 - (isScope ? k : 0));
    }
  }

  drawShares(item, x, y, w, h) {
    const { context, scale: k } = this;
    let at = x + 4 * k;
    const room = w - 8 * k;
    for (const [css, share] of this.shares(item)) {
      context.fillStyle = css;
      context.fillRect(at, y + h - 5 * k, room * share, 2.5 * k);
      at += room * share;
    }
  }

  drawScopeLabels(total, palette) {
    const { context, scale: k } = this;
    const { boxes, items } = this.layout;
    const { ox, oy } = this.origin;
    const ratio = pixelRatio();
    context.textBaseline = 'middle';
    context.textAlign = 'left';
    const inHeader = 20 * k >= 9 * ratio;
    const size = inHeader ? Math.max(8 * ratio, Math.min(12 * k, 14 * ratio)) : 11 * ratio;
    context.font = `600 ${size}px system-ui, sans-serif`;
    const taken = [];
    let around = -1;
    for (let v = 0; v < total && taken.length < FAR_LABELS_MAX; v += 1) {
      const i = this.onScreen[v];
      if (!this.isOpen[i]) continue;
      const b = 4 * i;
      const [left, top, w, h] = [ox + boxes[b] * k, oy + boxes[b + 1] * k, boxes[b + 2] * k, boxes[b + 3] * k];
      if (top < 0 && left <= 60 * ratio && left + w > this.canvas.width / 2 && top + h > this.canvas.height / 2)
        around = i;
      if (left < 0 || top < 0 || w < 44 * ratio || h < (inHeader ? 12 : 54) * ratio) continue;
      const label = `− ${this.model.label(items[i])}`;
      const fits = Math.max(3, Math.floor((w - 14) / (size * 0.6)));
      if (fits < label.length && fits < 8) continue;
      const text = label.length > fits ? `${label.slice(0, fits - 1)}…` : label;
      const box = {
        x: left + 5 * ratio,
        y: inHeader ? top + 3 * k : top + 4 * ratio,
        w: text.length * size * 0.6 + 6 * ratio,
        h: inHeader ? 16 * k : 16 * ratio,
      };
      if (taken.some((t) => box.x < t.x + t.w && t.x < box.x + box.w && box.y < t.y + t.h && t.y < box.y + box.h))
        continue;
      taken.push(box);
      if (!inHeader) this.chip(box, palette);
      context.fillStyle = palette.text;
      context.fillText(text, box.x + 3 * ratio, box.y + box.h / 2);
    }
    if (around >= 0) this.drawAround(this.model.name(items[around]), palette);
  }

  chip({ x, y, w, h }, palette) {
    const { context } = this;
    context.globalAlpha = 0.8;
    context.fillStyle = palette.surface;
    context.fillRect(x, y, w, h);
    context.globalAlpha = 1;
  }

  /** The name of the scope that the screen lies in, when its header is off the screen. */
  drawAround(name, palette) {
    const { context } = this;
    const ratio = pixelRatio();
    const size = 11.5 * ratio;
    context.font = `600 ${size}px system-ui, sans-serif`;
    const text = `in ${name}`;
    this.chip({ x: 6 * ratio, y: 6 * ratio, w: context.measureText(text).width + 12 * ratio, h: 20 * ratio }, palette);
    context.fillStyle = palette.text;
    context.fillText(text, 12 * ratio, 16.5 * ratio);
  }

  drawSelection(palette) {
    const slot = this.slots.get(this.selected);
    if (slot === undefined) return;
    const { context, scale: k } = this;
    const { ox, oy } = this.origin;
    const ratio = pixelRatio();
    if (!this.isOpen[slot]) {
      for (const [side, css] of [
        ['to', palette.accent],
        ['from', palette.transfer],
      ]) {
        context.beginPath();
        for (const e of this.edgesAt(side, slot)) this.curve(e, true);
        context.strokeStyle = css;
        context.lineWidth = Math.max(1.4 * ratio, 1.8 * k);
        context.stroke();
      }
    }
    const [x, y, w, h] = this.layout.boxes.subarray(4 * slot, 4 * slot + 4);
    const grow = 3 * ratio;
    context.strokeStyle = palette.accent;
    context.lineWidth = 2.5 * ratio;
    context.beginPath();
    context.roundRect(
      ox + x * k - grow,
      oy + y * k - grow,
      Math.max(3, w * k) + 2 * grow,
      Math.max(3, h * k) + 2 * grow,
      5 * ratio,
    );
    context.stroke();
  }

  /** Up to a thousand edges whose end `side` is the box `slot`. */
  edgesAt(side, slot) {
    if (this.byBox?.slot !== slot) {
      this.byBox = { slot, from: [], to: [] };
      for (const end of ['from', 'to']) {
        const list = this.layout[end];
        for (let e = 0; e < list.length && this.byBox[end].length < 1000; e += 1)
          if (list[e] === slot) this.byBox[end].push(e);
      }
    }
    return this.byBox[side];
  }
}
