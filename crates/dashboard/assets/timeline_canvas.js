// Draws the spans of a step, a row per lane of a device, and moves in time. Rows are painted a column of
// pixels at a time, so that a hundred thousand spans cost no more than the pixels that they cover.

import {
  bytes,
  colors,
  fitCanvas,
  hideTooltip,
  mix,
  percent,
  perFrame,
  pixelRatio,
  seconds,
  short,
  showTooltip,
} from './ui.js';
import { packed, Raster } from './raster.js';

const GUTTER = 168;
const OVERVIEW = 26;
const AXIS = 20;
const STRIP = 18;
const TOP = OVERVIEW + AXIS + STRIP;
const LANE = 17;
const GROUP = 20;
const GROUP_GAP = 6;
const LABELS_MAX = 240;
const LINKS_MAX = 400;
const CONSUMERS_MAX = 40;
const BINS = 800;
const KINDS = ['compute', 'transfer', 'wait', 'dispatch'];
/** Colours of the pieces of the critical path. */
export const PIECE_COLOR = { compute: 'compute', link: 'transfer', queueing: 'queueing', waiting: 'wait' };

export class TimelineCanvas {
  /** `events`: select(span). */
  constructor(canvas, events) {
    Object.assign(this, { canvas, events, step: null, selected: -1, onlyCritical: false, scroll: 0, view: [0, 1] });
    this.context = canvas.getContext('2d', { alpha: false, willReadFrequently: true });
    this.raster = new Raster();
    this.draw = perFrame(() => this.paint());
    this.measure();
    new ResizeObserver(() => {
      this.measure();
      this.clampScroll();
      this.draw();
    }).observe(canvas);
    document.addEventListener('themechange', () => this.draw());
    this.listen();
  }

  /** Shows a step; a view of all of it stays one, a selected span stays selected if there is one like it. */
  set(step) {
    const old = this.step;
    const wasAll = !old || (this.view[0] <= 0 && this.view[1] >= this.total);
    const chosen = old?.timeline[this.selected];
    this.step = step;
    this.index();
    if (wasAll) this.view = [0, this.total];
    this.clampView();
    this.clampScroll();
    this.selected = chosen
      ? step.timeline.findIndex((s) => s.name === chosen.name && s.kind === chosen.kind && s.device === chosen.device)
      : -1;
    this.draw();
  }

  /** Rows, with their spans by start, and what of them is critical. */
  index() {
    const { timeline, devices, critical_path: path } = this.step;
    const byLane = devices.map(() => new Map());
    this.total = Math.max(this.step.step_seconds || 0, 1e-9);
    timeline.forEach((span, i) => {
      const lanes = byLane[span.device];
      if (!lanes) return;
      if (!lanes.has(span.lane)) lanes.set(span.lane, []);
      lanes.get(span.lane).push(i);
      if (span.end > this.total) this.total = span.end;
    });
    this.rows = [];
    this.groups = [];
    this.rowOf = new Int32Array(timeline.length).fill(-1);
    let y = 0;
    devices.forEach((device, d) => {
      this.groups.push({ device: d, y });
      y += GROUP;
      for (const lane of [...byLane[d].keys()].sort((a, b) => a - b)) {
        this.rows.push(this.makeRow(d, lane, y, byLane[d].get(lane)));
        y += LANE;
      }
      y += GROUP_GAP;
    });
    this.height = y;
    this.isCritical = new Uint8Array(timeline.length);
    for (const piece of path) if (piece.span !== null && piece.span >= 0) this.isCritical[piece.span] = 1;
    this.pieces = {
      kind: path.map((piece) => piece.kind),
      start: Float64Array.from(path, (piece) => piece.start),
      end: Float64Array.from(path, (piece) => piece.end),
    };
    this.hops = this.criticalHops(path);
    this.consumers = null;
    this.bin();
  }

  /** Where the critical path changes rows, by time: the two rows and times. */
  criticalHops(path) {
    const hops = [];
    let before = -1;
    for (const { span } of path) {
      if (span === null || span === undefined || span < 0) continue;
      const { timeline } = this.step;
      if (before >= 0 && this.rowOf[before] !== this.rowOf[span] && this.rowOf[before] >= 0 && this.rowOf[span] >= 0) {
        hops.push([timeline[before].end, this.rowOf[before], timeline[span].start, this.rowOf[span]]);
      }
      before = span;
    }
    return hops;
  }

  makeRow(device, lane, y, spans) {
    const { timeline } = this.step;
    spans.sort((a, b) => timeline[a].start - timeline[b].start || timeline[a].end - timeline[b].end);
    const n = spans.length;
    const row = {
      device,
      lane,
      y,
      spans: Int32Array.from(spans),
      ready: new Float64Array(n),
      start: new Float64Array(n),
      end: new Float64Array(n),
      last: new Float64Array(n),
      kind: new Uint8Array(n),
    };
    for (let i = 0; i < n; i += 1) {
      const span = timeline[spans[i]];
      row.ready[i] = Math.min(span.ready ?? span.start, span.start);
      row.start[i] = span.start;
      row.end[i] = span.end;
      // The latest end so far, which is sorted even where spans overlap.
      row.last[i] = Math.max(i ? row.last[i - 1] : 0, span.end);
      row.kind[i] = Math.max(0, KINDS.indexOf(span.kind));
      this.rowOf[spans[i]] = this.rows.length;
    }
    return row;
  }

  /** Busy time of each kind by slices of the step, for the overview. */
  bin() {
    this.bins = KINDS.map(() => new Float64Array(BINS));
    const width = this.total / BINS;
    for (const row of this.rows) {
      for (let i = 0; i < row.spans.length; i += 1) {
        const first = Math.min(BINS - 1, Math.floor(row.start[i] / width));
        const last = Math.min(BINS - 1, Math.floor(row.end[i] / width));
        for (let b = first; b <= last; b += 1) {
          const part = Math.min(row.end[i], (b + 1) * width) - Math.max(row.start[i], b * width);
          if (part > 0) this.bins[row.kind[i]][b] += part / width;
        }
      }
    }
    this.binMax = 1;
    for (let b = 0; b < BINS; b += 1)
      this.binMax = Math.max(this.binMax, this.bins[0][b] + this.bins[1][b] + this.bins[3][b]);
  }

  select(span) {
    this.selected = span;
    this.draw();
  }

  /** Brings a span into sight; zooms in if it is too small to see. */
  reveal(span) {
    const s = this.step?.timeline[span];
    if (!s) return;
    this.revealTime(s.ready ?? s.start, s.end);
    const row = this.rows[this.rowOf[span]];
    if (row) {
      const room = this.canvas.clientHeight - TOP;
      if (row.y < this.scroll + GROUP || row.y + LANE > this.scroll + room) this.scroll = row.y - room / 2;
    }
    this.clampScroll();
    this.draw();
  }

  revealTime(start, end) {
    const [t0, t1] = this.view;
    const length = Math.max(end - start, this.total * 1e-6);
    const pixels = (length / (t1 - t0)) * this.plotWidth;
    let width = t1 - t0;
    if (pixels < 12) width = Math.min(width, (length * this.plotWidth) / 60);
    if (pixels > this.plotWidth) width = length * 1.4;
    if (start < t0 || end > t1 || width !== t1 - t0) {
      const middle = (start + end) / 2;
      this.view = [middle - width / 2, middle + width / 2];
      this.clampView();
    }
    this.draw();
  }

  /** Asks the page for the size once a change, since every span's place depends on it. */
  measure() {
    this.plotWidth = Math.max(10, this.canvas.clientWidth - GUTTER);
  }

  /** Shows the whole step. */
  fit() {
    this.view = [0, this.total];
    this.draw();
  }

  /** Moves by CSS pixels. */
  pan(dx, dy) {
    const shift = (dx / this.plotWidth) * (this.view[1] - this.view[0]);
    this.view = [this.view[0] - shift, this.view[1] - shift];
    this.scroll -= dy;
    this.clampView();
    this.clampScroll();
    this.draw();
  }

  /** Zooms about a place of the canvas in CSS pixels, or about its middle. */
  zoom(factor, px = GUTTER + this.plotWidth / 2) {
    const at = this.timeAt(px);
    const [t0, t1] = this.view;
    const width = Math.max(this.total * 1e-7, Math.min(this.total, (t1 - t0) / factor));
    const share = (at - t0) / (t1 - t0);
    this.view = [at - share * width, at + (1 - share) * width];
    this.clampView();
    this.draw();
  }

  clampView() {
    let [t0, t1] = this.view;
    const width = Math.min(t1 - t0, this.total);
    if (!(width > 0)) {
      this.view = [0, this.total];
      return;
    }
    t0 = Math.max(0, Math.min(t0, this.total - width));
    t1 = t0 + width;
    this.view = [t0, t1];
  }

  clampScroll() {
    const room = this.canvas.clientHeight - TOP;
    this.scroll = Math.max(0, Math.min(this.scroll, (this.height ?? 0) - room));
  }

  timeAt(px) {
    const [t0, t1] = this.view;
    return t0 + ((px - GUTTER) / this.plotWidth) * (t1 - t0);
  }

  xOf(time) {
    const [t0, t1] = this.view;
    return GUTTER + ((time - t0) / (t1 - t0)) * this.plotWidth;
  }

  /** The span at a point of the canvas, or -1. */
  hit(px, py) {
    if (!this.step || py < TOP || px < GUTTER) return -1;
    const y = py - TOP + this.scroll;
    const row = this.rows.find((r) => y >= r.y && y < r.y + LANE);
    if (!row) return -1;
    const time = this.timeAt(px);
    const slack = (2.5 / this.plotWidth) * (this.view[1] - this.view[0]);
    let best = -1;
    for (let i = lowerBound(row.last, time - slack); i < row.spans.length && row.start[i] <= time + slack; i += 1) {
      if (row.end[i] >= time - slack) best = row.spans[i];
      if (row.start[i] <= time && row.end[i] >= time) return row.spans[i];
    }
    return best;
  }

  /** The span before or after the selected one in its row. */
  neighbour(step) {
    const row = this.rows[this.selected >= 0 ? this.rowOf[this.selected] : 0];
    if (!row) return -1;
    const at = row.spans.indexOf(this.selected);
    return row.spans[Math.max(0, Math.min(row.spans.length - 1, at < 0 ? 0 : at + step))] ?? -1;
  }

  listen() {
    const { canvas } = this;
    let drag = null;
    canvas.addEventListener(
      'wheel',
      (event) => {
        event.preventDefault();
        const unit = event.deltaMode === 1 ? 20 : 1;
        if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
          this.pan(-(event.deltaX || event.deltaY) * unit, 0);
        } else if (event.offsetX < GUTTER) this.pan(0, -event.deltaY * unit);
        else this.zoom(Math.exp(-event.deltaY * unit * 0.0018), event.offsetX);
      },
      { passive: false },
    );
    canvas.addEventListener('pointerdown', (event) => {
      if (event.button !== 0) return;
      drag = { x: event.clientX, y: event.clientY, far: false, inOverview: event.offsetY < OVERVIEW };
      if (drag.inOverview) this.toOverview(event.offsetX);
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
      if (drag.inOverview) {
        this.toOverview(event.offsetX);
        return;
      }
      const [dx, dy] = [event.clientX - drag.x, event.clientY - drag.y];
      if (!drag.far && Math.hypot(dx, dy) < 4) return;
      Object.assign(drag, { x: event.clientX, y: event.clientY, far: true });
      this.pan(dx, dy);
    });
    canvas.addEventListener('pointerup', (event) => {
      if (drag && !drag.far && !drag.inOverview) this.events.select(this.hit(event.offsetX, event.offsetY));
      drag = null;
    });
    canvas.addEventListener('pointercancel', () => {
      drag = null;
    });
    canvas.addEventListener('pointerleave', () => hideTooltip());
  }

  toOverview(px) {
    const middle = ((px - GUTTER) / this.plotWidth) * this.total;
    const width = this.view[1] - this.view[0];
    this.view = [middle - width / 2, middle + width / 2];
    this.clampView();
    this.draw();
  }

  hover(event) {
    const at = this.hit(event.offsetX, event.offsetY);
    if (at < 0) {
      hideTooltip();
      return;
    }
    const span = this.step.timeline[at];
    const lines = [span.name, `${span.op || span.kind}, ${seconds(span.end - span.start)}`];
    if (span.start - span.ready > 1e-9) lines.push(`ready ${seconds(span.start - span.ready)} before it started`);
    if (span.kind === 'transfer' && span.bytes !== undefined) {
      lines.push(`${bytes(span.bytes)} from ${short(this.step.devices[span.from]?.name)}`);
    }
    if (this.isCritical[at]) lines.push('on the critical path');
    showTooltip(event.clientX, event.clientY, lines);
  }

  paint() {
    const { canvas, context, raster } = this;
    fitCanvas(canvas);
    this.measure();
    raster.resize(canvas.width, canvas.height);
    const palette = colors();
    raster.clear(packed(palette.surface));
    if (!this.step) {
      raster.show(context);
      return;
    }
    this.paintRows(palette);
    this.paintStrip(palette);
    this.paintOverview(palette);
    raster.show(context);
    context.save();
    context.scale(pixelRatio(), pixelRatio());
    this.drawLabels(palette);
    this.drawLinks(palette);
    this.drawGutter(palette);
    this.drawAxis(palette);
    context.restore();
  }

  paintRows(palette) {
    const ratio = pixelRatio();
    const { width } = this.canvas;
    const left = Math.round(GUTTER * ratio);
    const column = new Uint32Array(width);
    const marks = new Uint8Array(width);
    const strong = KINDS.map((kind) => packed(palette[kind]));
    const pale = KINDS.map((kind) => packed(mix(palette.surface, palette[kind], 0.22)));
    const faint = KINDS.map((kind) => packed(mix(palette.surface, palette[kind], 0.3)));
    const background = packed(palette.raised);
    const critical = packed(palette.critical);
    for (const row of this.rows) {
      const top = Math.round((TOP + row.y - this.scroll) * ratio);
      const bottom = top + Math.round((LANE - 2) * ratio);
      if (bottom <= TOP * ratio || top >= this.canvas.height) continue;
      column.fill(background);
      marks.fill(0);
      this.paintRow(
        row,
        column,
        marks,
        left,
        width,
        { strong: this.onlyCritical ? faint : strong, pale, full: strong },
        background,
      );
      const slice = column.subarray(left);
      const line = Math.max(2, Math.round(2.5 * ratio));
      for (let y = Math.max(top, Math.round(TOP * ratio)); y < bottom && y < this.canvas.height; y += 1) {
        this.raster.pixels.set(slice, y * width + left);
        if (y >= bottom - line)
          for (let x = left; x < width; x += 1) if (marks[x]) this.raster.pixels[y * width + x] = critical;
      }
    }
  }

  /** Colours one row: waiting to start first, so that what runs lies on top. */
  paintRow(row, column, marks, left, width, { strong, pale, full }, background) {
    const ratio = pixelRatio();
    const [t0, t1] = this.view;
    const scale = (this.plotWidth * ratio) / (t1 - t0);
    const shift = GUTTER * ratio - t0 * scale;
    const { spans, ready, start, end, kind } = row;
    const first = lowerBound(row.last, t0);
    let stop = first;
    while (stop < spans.length && start[stop] <= t1) stop += 1;
    const clip = (x) => (x < left ? left : x > width ? width : x);
    for (let i = first; i < Math.min(spans.length, stop + 1); i += 1) {
      if (start[i] - ready[i] <= 0) continue;
      const [x0, x1] = [clip(Math.round(shift + ready[i] * scale)), clip(Math.round(shift + start[i] * scale))];
      if (x1 > x0) column.fill(pale[kind[i]], x0, x1);
    }
    for (let i = first; i < stop; i += 1) {
      if (end[i] < t0) continue;
      const from = Math.round(shift + start[i] * scale);
      let to = Math.round(shift + end[i] * scale);
      if (to <= from) to = from + 1;
      const x0 = from < left ? left : from;
      const x1 = to > width ? width : to;
      if (x0 >= x1) continue;
      const isCritical = this.isCritical[spans[i]];
      const color = (isCritical ? full : strong)[kind[i]];
      if (x1 - x0 === 1) {
        column[x0] = color;
        if (isCritical) marks[x0] = 1;
        continue;
      }
      column.fill(color, x0, x1);
      if (isCritical) marks.fill(1, x0, x1);
      // A gap of a pixel tells neighbours of one colour apart.
      if (to - from > 3 && to <= width) column[to - 1] = background;
    }
  }

  paintStrip(palette) {
    const ratio = pixelRatio();
    const [y0, y1] = [Math.round((OVERVIEW + AXIS + 3) * ratio), Math.round((TOP - 4) * ratio)];
    const left = Math.round(GUTTER * ratio);
    const shade = Object.fromEntries(Object.entries(PIECE_COLOR).map(([kind, name]) => [kind, packed(palette[name])]));
    const surface = packed(palette.surface);
    const { kind, start, end } = this.pieces;
    let right = left;
    for (let i = 0; i < kind.length; i += 1) {
      const x0 = Math.max(left, Math.round(this.xOf(start[i]) * ratio));
      const x1 = Math.min(this.canvas.width, Math.max(x0 + 1, Math.round(this.xOf(end[i]) * ratio)));
      // Of pieces in one column the first is as good as any.
      if (x1 <= right || x0 >= this.canvas.width) continue;
      right = x1;
      this.raster.box(x0, y0, x1, y1, shade[kind[i]] ?? shade.waiting);
      if (x1 - x0 > 4) this.raster.box(x1 - 1, y0, x1, y1, surface);
    }
  }

  paintOverview(palette) {
    const ratio = pixelRatio();
    const { raster } = this;
    const left = Math.round(GUTTER * ratio);
    const bottom = Math.round((OVERVIEW - 2) * ratio);
    raster.box(left, 0, this.canvas.width, bottom, packed(palette.raised));
    const width = this.canvas.width - left;
    const shown = [
      [0, packed(palette.compute)],
      [1, packed(palette.transfer)],
      [3, packed(palette.dispatch)],
    ];
    for (let x = 0; x < width; x += 1) {
      const bin = Math.floor((x / width) * BINS);
      let y = bottom;
      for (const [kind, color] of shown) {
        const high = Math.round((this.bins[kind][bin] / this.binMax) * (bottom - 2));
        if (high > 0) raster.box(left + x, y - high, left + x + 1, y, color);
        y -= high;
      }
    }
    const [a, b] = this.view.map((t) => left + Math.round((t / this.total) * width));
    if (b - a < width) {
      raster.frame(a, 0, Math.max(b, a + 3), bottom, packed(palette.accent));
      raster.frame(a - 1, 0, Math.max(b, a + 3) + 1, bottom, packed(palette.accent));
    }
  }

  drawLabels(palette) {
    const { context } = this;
    const [t0, t1] = this.view;
    const width = this.canvas.clientWidth;
    const least = (38 / this.plotWidth) * (t1 - t0);
    let left = LABELS_MAX;
    context.font = '10.5px system-ui, sans-serif';
    context.textBaseline = 'middle';
    context.textAlign = 'left';
    context.save();
    context.beginPath();
    context.rect(GUTTER, TOP, width - GUTTER, this.canvas.clientHeight - TOP);
    context.clip();
    for (const row of this.rows) {
      const y = TOP + row.y - this.scroll;
      if (y + LANE < TOP || y > this.canvas.clientHeight) continue;
      for (let i = lowerBound(row.last, t0); i < row.spans.length && row.start[i] < t1 && left > 0; i += 1) {
        if (row.end[i] - row.start[i] < least) continue;
        const x0 = Math.max(GUTTER, this.xOf(row.start[i]));
        const room = Math.min(width, this.xOf(row.end[i])) - x0 - 8;
        const fits = Math.floor(room / 5.6);
        if (fits < 4) continue;
        const { name } = this.step.timeline[row.spans[i]];
        const last = name.length > fits ? name.slice(name.lastIndexOf('/') + 1) : name;
        context.fillStyle = KINDS[row.kind[i]] === 'wait' || this.onlyCritical ? palette.text : '#fff';
        context.fillText(last.length > fits ? `${last.slice(0, fits - 1)}…` : last, x0 + 4, y + (LANE - 2) / 2);
        left -= 1;
      }
    }
    context.restore();
  }

  /** Where a span is on the canvas: left, right, middle of its row. */
  place(span) {
    const row = this.rows[this.rowOf[span]];
    if (!row) return null;
    const { start, end } = this.step.timeline[span];
    return { x0: this.xOf(start), x1: this.xOf(end), y: TOP + row.y - this.scroll + (LANE - 2) / 2 };
  }

  drawLinks(palette) {
    const { context } = this;
    const [t0, t1] = this.view;
    context.save();
    context.beginPath();
    context.rect(GUTTER, TOP, this.canvas.clientWidth - GUTTER, this.canvas.clientHeight - TOP);
    context.clip();
    const shown = [];
    for (const hop of this.hops) {
      if (hop[2] < t0 || hop[0] > t1) continue;
      shown.push(hop);
      if (shown.length > LINKS_MAX) break;
    }
    // More lines than that say nothing: they appear when one zooms in.
    if (shown.length <= LINKS_MAX) {
      const middle = (row) => TOP + this.rows[row].y - this.scroll + (LANE - 2) / 2;
      context.beginPath();
      for (const [end, from, start, to] of shown) {
        context.moveTo(this.xOf(end), middle(from));
        context.lineTo(this.xOf(start), middle(to));
      }
      context.strokeStyle = palette.critical;
      context.globalAlpha = 0.7;
      context.lineWidth = 1.2;
      context.stroke();
      context.globalAlpha = 1;
    }
    if (this.selected >= 0) this.drawSelected(palette);
    context.restore();
  }

  drawSelected(palette) {
    const { context, step, selected } = this;
    const here = this.place(selected);
    if (!here) return;
    const span = step.timeline[selected];
    const cause = span.cause >= 0 && span.cause !== null ? this.place(span.cause) : null;
    if (cause) this.arrow(cause.x1, cause.y, here.x0, here.y, palette.accent);
    else if (span.kind === 'transfer' && span.from !== undefined && span.from !== span.device) {
      const group = this.groups[span.from];
      if (group) this.arrow(here.x0, TOP + group.y - this.scroll + GROUP / 2, here.x0, here.y, palette.accent);
    }
    for (const consumer of this.consumersOf(selected)) {
      const there = this.place(consumer);
      if (there) this.arrow(here.x1, here.y, there.x0, there.y, palette.transfer);
    }
    context.strokeStyle = palette.text;
    context.lineWidth = 2;
    context.strokeRect(here.x0 - 1, here.y - (LANE - 2) / 2 - 1, Math.max(2, here.x1 - here.x0) + 2, LANE);
  }

  consumersOf(span) {
    if (!this.consumers) {
      this.consumers = new Map();
      this.step.timeline.forEach(({ cause }, i) => {
        if (cause === null || cause === undefined || cause < 0) return;
        if (!this.consumers.has(cause)) this.consumers.set(cause, []);
        this.consumers.get(cause).push(i);
      });
    }
    return (this.consumers.get(span) ?? []).slice(0, CONSUMERS_MAX);
  }

  arrow(x0, y0, x1, y1, color) {
    const { context } = this;
    const angle = Math.atan2(y1 - y0, x1 - x0);
    context.strokeStyle = color;
    context.fillStyle = color;
    context.lineWidth = 1.6;
    context.beginPath();
    context.moveTo(x0, y0);
    context.lineTo(x1, y1);
    context.stroke();
    context.beginPath();
    context.moveTo(x1, y1);
    context.lineTo(x1 - 8 * Math.cos(angle - 0.4), y1 - 8 * Math.sin(angle - 0.4));
    context.lineTo(x1 - 8 * Math.cos(angle + 0.4), y1 - 8 * Math.sin(angle + 0.4));
    context.fill();
  }

  drawGutter(palette) {
    const { context } = this;
    const height = this.canvas.clientHeight;
    context.save();
    context.beginPath();
    context.rect(0, TOP, this.canvas.clientWidth, height - TOP);
    context.clip();
    context.textBaseline = 'middle';
    for (const { device, y } of this.groups) {
      const top = TOP + y - this.scroll;
      if (top + GROUP < TOP || top > height) continue;
      const { name, busy_seconds: busy, peak_memory_bytes: peak } = this.step.devices[device];
      context.fillStyle = palette.text;
      context.font = '600 11.5px system-ui, sans-serif';
      context.textAlign = 'left';
      context.fillText(short(name), 8, top + GROUP / 2 + 1);
      context.fillStyle = palette.muted;
      context.font = '11px system-ui, sans-serif';
      const facts = [`busy ${percent((busy ?? 0) / this.total)}`];
      if (peak) facts.push(`peak ${bytes(peak)}`);
      context.fillText(facts.join('   '), GUTTER + 6, top + GROUP / 2 + 1);
    }
    context.textAlign = 'right';
    context.font = '10.5px system-ui, sans-serif';
    context.fillStyle = palette.muted;
    for (const row of this.rows) {
      const top = TOP + row.y - this.scroll;
      if (top + LANE < TOP || top > height) continue;
      context.fillText(`lane ${row.lane}`, GUTTER - 8, top + (LANE - 2) / 2);
    }
    const room = height - TOP;
    if (this.height > room) {
      const length = Math.max(24, (room * room) / this.height);
      context.globalAlpha = 0.35;
      context.fillRect(
        this.canvas.clientWidth - 6,
        TOP + (this.scroll / (this.height - room)) * (room - length),
        4,
        length,
      );
      context.globalAlpha = 1;
    }
    context.restore();
  }

  drawAxis(palette) {
    const { context } = this;
    const [t0, t1] = this.view;
    const width = this.canvas.clientWidth;
    context.fillStyle = palette.muted;
    context.font = '11px system-ui, sans-serif';
    context.textBaseline = 'middle';
    context.textAlign = 'left';
    context.fillText('whole step', 8, OVERVIEW / 2);
    context.fillText('critical path', 8, OVERVIEW + AXIS + STRIP / 2);
    context.strokeStyle = palette.line;
    context.lineWidth = 1;
    context.beginPath();
    const y = OVERVIEW + AXIS;
    for (const line of [y, TOP - 0.5]) {
      context.moveTo(0, Math.round(line) + 0.5);
      context.lineTo(width, Math.round(line) + 0.5);
    }
    const tick = niceStep((t1 - t0) / Math.max(2, this.plotWidth / 110));
    for (let t = Math.ceil(t0 / tick) * tick; t <= t1; t += tick) {
      const x = this.xOf(t);
      context.moveTo(Math.round(x) + 0.5, y - 5);
      context.lineTo(Math.round(x) + 0.5, y);
      if (x < width - 60) context.fillText(tickText(t, tick, t1), x + 3, OVERVIEW + AXIS / 2);
    }
    context.stroke();
    context.beginPath();
    context.moveTo(GUTTER - 0.5, 0);
    context.lineTo(GUTTER - 0.5, this.canvas.clientHeight);
    context.stroke();
  }
}

/** The first position whose value is at least `wanted` in a sorted array. */
function lowerBound(sorted, wanted) {
  let [low, high] = [0, sorted.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] < wanted) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** The next of 1, 2, 5, 10, … times a power of ten. */
export function niceStep(least) {
  const power = 10 ** Math.floor(Math.log10(least));
  for (const m of [1, 2, 5, 10]) if (m * power >= least * 0.9999) return m * power;
  return 10 * power;
}

function tickText(t, tick, largest) {
  const [unit, scale] = largest < 1e-3 ? ['µs', 1e6] : largest < 1 ? ['ms', 1e3] : ['s', 1];
  const places = Math.max(0, Math.min(6, -Math.floor(Math.log10(tick * scale) + 1e-9)));
  return `${(t * scale).toFixed(places)} ${unit}`;
}
