// Charts: sparklines, line charts with axes and a cursor, heat maps and ridges of histograms.

import { colors, digits, fitCanvas, hideTooltip, mix, perFrame, pixelRatio, showTooltip } from './ui.js';
import { niceStep } from './timeline_canvas.js';

const LEFT = 52;
const BOTTOM = 20;
const TOP = 8;
const RIGHT = 12;

/** Draws `values` as a small line with its area; the newest is at the right edge of `length` places. */
export function sparkline(canvas, values, length, color) {
  fitCanvas(canvas);
  const context = canvas.getContext('2d');
  const { width, height } = canvas;
  context.clearRect(0, 0, width, height);
  if (values.length < 2) return;
  const most = Math.max(...values, 1e-9);
  const x = (i) => width - 2 - ((values.length - 1 - i) / (length - 1)) * (width - 4);
  const y = (v) => height - 2 - (v / most) * (height - 5);
  context.beginPath();
  values.forEach((v, i) => context[i ? 'lineTo' : 'moveTo'](x(i), y(v)));
  context.strokeStyle = color;
  context.lineWidth = 1.4 * pixelRatio();
  context.stroke();
  context.lineTo(x(values.length - 1), height);
  context.lineTo(x(0), height);
  context.globalAlpha = 0.15;
  context.fillStyle = color;
  context.fill();
  context.globalAlpha = 1;
}

/** Lines over a common axis. A series is `{name, color, x: [], y: [], faint: []|null}`. */
export class LineChart {
  constructor(canvas, options = {}) {
    Object.assign(this, { canvas, series: [], log: false, cursor: null, xText: digits, ...options });
    this.draw = perFrame(() => this.paint());
    new ResizeObserver(this.draw).observe(canvas);
    document.addEventListener('themechange', () => this.draw());
    canvas.addEventListener('pointermove', (event) => this.point(event));
    canvas.addEventListener('pointerleave', () => {
      this.cursor = null;
      hideTooltip();
      this.draw();
    });
  }

  set(series, options = {}) {
    Object.assign(this, options, { series });
    this.draw();
  }

  ranges() {
    let [x0, x1, y0, y1] = [Infinity, -Infinity, Infinity, -Infinity];
    for (const { x, y, faint } of this.series) {
      for (const values of faint ? [y, faint] : [y]) {
        for (let i = 0; i < x.length; i += 1) {
          const v = values[i];
          if (!Number.isFinite(v) || (this.log && v <= 0)) continue;
          if (x[i] < x0) x0 = x[i];
          if (x[i] > x1) x1 = x[i];
          if (v < y0) y0 = v;
          if (v > y1) y1 = v;
        }
      }
    }
    if (!(x0 <= x1)) return null;
    if (x0 === x1) [x0, x1] = [x0 - 0.5, x1 + 0.5];
    if (this.log) [y0, y1] = [Math.log10(y0), Math.log10(y1)];
    if (this.fromZero && !this.log) y0 = Math.min(0, y0);
    const pad = y1 > y0 ? (y1 - y0) * 0.06 : Math.max(Math.abs(y1) * 0.05, 1e-6);
    return { x0, x1, y0: this.fromZero && y0 === 0 ? 0 : y0 - pad, y1: y1 + pad };
  }

  paint() {
    const { canvas } = this;
    fitCanvas(canvas);
    const context = canvas.getContext('2d');
    const palette = colors();
    const ratio = pixelRatio();
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    const [width, height] = [canvas.clientWidth, canvas.clientHeight];
    context.clearRect(0, 0, width, height);
    this.plot = { w: width - LEFT - RIGHT, h: height - TOP - BOTTOM };
    this.range = this.ranges();
    if (!this.range) {
      context.fillStyle = palette.muted;
      context.font = '12px system-ui, sans-serif';
      context.textAlign = 'center';
      context.fillText(this.log ? 'nothing above zero' : 'no points yet', width / 2, height / 2);
      return;
    }
    this.axes(context, palette, width, height);
    context.save();
    context.beginPath();
    context.rect(LEFT, TOP - 2, width - LEFT - RIGHT + 2, height - TOP - BOTTOM + 4);
    context.clip();
    for (const line of this.series) {
      if (line.faint) this.line(context, line.x, line.faint, line.color, 0.22, 1);
      this.line(context, line.x, line.y, line.color, 1, 1.6);
    }
    context.restore();
    this.drawCursor(context, palette, height);
  }

  xAt(x) {
    return LEFT + ((x - this.range.x0) / (this.range.x1 - this.range.x0)) * this.plot.w;
  }

  yAt(y) {
    const v = this.log ? Math.log10(y) : y;
    return TOP + (1 - (v - this.range.y0) / (this.range.y1 - this.range.y0)) * this.plot.h;
  }

  axes(context, palette, width, height) {
    const { x0, x1, y0, y1 } = this.range;
    context.strokeStyle = palette.line;
    context.fillStyle = palette.muted;
    context.font = '11px system-ui, sans-serif';
    context.lineWidth = 1;
    context.textBaseline = 'middle';
    context.textAlign = 'right';
    context.beginPath();
    const yStep = niceStep((y1 - y0) / 4);
    for (let v = Math.ceil(y0 / yStep) * yStep; v <= y1 + yStep * 1e-6; v += yStep) {
      const y = Math.round(TOP + (1 - (v - y0) / (y1 - y0)) * this.plot.h) + 0.5;
      context.moveTo(LEFT, y);
      context.lineTo(width - RIGHT, y);
      context.fillText(digits(this.log ? 10 ** v : Math.abs(v) < yStep * 1e-6 ? 0 : v), LEFT - 6, y);
    }
    context.stroke();
    context.textAlign = 'center';
    const xStep = niceStep((x1 - x0) / Math.max(2, this.plot.w / 56));
    for (let v = Math.ceil(x0 / xStep) * xStep; v <= x1 + xStep * 1e-6; v += xStep) {
      context.fillText(
        this.xText(Math.abs(v) < xStep * 1e-6 ? 0 : v),
        Math.min(width - 18, this.xAt(v)),
        height - BOTTOM / 2 + 2,
      );
    }
  }

  /** A line of at most four points a pixel column: first, least, most, last. */
  line(context, xs, ys, color, alpha, width) {
    context.beginPath();
    context.strokeStyle = color;
    context.globalAlpha = alpha;
    context.lineWidth = width;
    context.lineJoin = 'round';
    let isDown = false;
    const put = (x, y) => {
      context[isDown ? 'lineTo' : 'moveTo'](x, y);
      isDown = true;
    };
    let bucket = null;
    const flush = () => {
      if (!bucket) return;
      put(bucket.x, bucket.first);
      if (bucket.n > 1) {
        if (bucket.n > 2) {
          put(bucket.x, bucket.low);
          put(bucket.x, bucket.high);
        }
        put(bucket.x, bucket.last);
      }
      bucket = null;
    };
    for (let i = 0; i < xs.length; i += 1) {
      if (!Number.isFinite(ys[i]) || (this.log && ys[i] <= 0)) {
        flush();
        isDown = false;
        continue;
      }
      const x = this.xAt(xs[i]);
      const y = this.yAt(ys[i]);
      if (bucket && Math.abs(x - bucket.x) < 0.5) {
        bucket.low = Math.min(bucket.low, y);
        bucket.high = Math.max(bucket.high, y);
        bucket.last = y;
        bucket.n += 1;
      } else {
        flush();
        bucket = { x, first: y, low: y, high: y, last: y, n: 1 };
      }
    }
    flush();
    context.stroke();
    context.globalAlpha = 1;
    // A point without a neighbour is no line.
    const isDrawn = (v) => Number.isFinite(v) && (!this.log || v > 0);
    context.fillStyle = color;
    for (let i = 0; i < xs.length; i += 1) {
      if (!isDrawn(ys[i]) || isDrawn(ys[i - 1]) || isDrawn(ys[i + 1])) continue;
      context.fillRect(this.xAt(xs[i]) - 2, this.yAt(ys[i]) - 2, 4, 4);
    }
  }

  point(event) {
    if (!this.range) return;
    const share = (event.offsetX - LEFT) / this.plot.w;
    const wanted = this.range.x0 + Math.max(0, Math.min(1, share)) * (this.range.x1 - this.range.x0);
    const lines = [];
    this.cursor = [];
    for (const series of this.series) {
      const i = nearest(series.x, wanted);
      if (i < 0 || !Number.isFinite(series.y[i])) continue;
      lines.push(`${series.name ? `${series.name}: ` : ''}${digits(series.y[i])}`);
      this.cursor.push({ x: series.x[i], y: series.y[i], color: series.color });
    }
    if (!lines.length) return;
    showTooltip(event.clientX, event.clientY, [
      `${this.xName ?? ''} ${this.xText(this.cursor[0].x)}`.trim(),
      ...lines.slice(0, 14),
    ]);
    this.draw();
  }

  drawCursor(context, palette, height) {
    if (!this.cursor?.length) return;
    const x = Math.round(this.xAt(this.cursor[0].x)) + 0.5;
    context.strokeStyle = palette.muted;
    context.lineWidth = 1;
    context.beginPath();
    context.moveTo(x, TOP);
    context.lineTo(x, height - BOTTOM);
    context.stroke();
    for (const { x: cx, y, color } of this.cursor) {
      if (this.log && y <= 0) continue;
      context.fillStyle = color;
      context.beginPath();
      context.arc(this.xAt(cx), this.yAt(y), 3, 0, 7);
      context.fill();
    }
  }
}

/** The position nearest to `wanted` in an ascending list, or -1. */
function nearest(list, wanted) {
  if (!list.length) return -1;
  let [low, high] = [0, list.length - 1];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (list[middle] < wanted) low = middle + 1;
    else high = middle;
  }
  return low > 0 && wanted - list[low - 1] < list[low] - wanted ? low - 1 : low;
}

/** Histograms of many steps, as a heat map or as ridges. */
export class HistogramChart {
  constructor(canvas) {
    Object.assign(this, { canvas, steps: [], mode: 'map' });
    this.draw = perFrame(() => this.paint());
    new ResizeObserver(this.draw).observe(canvas);
    document.addEventListener('themechange', () => this.draw());
    canvas.addEventListener('pointermove', (event) => this.point(event));
    canvas.addEventListener('pointerleave', hideTooltip);
  }

  set(steps, mode) {
    Object.assign(this, { steps, mode });
    const edges = steps
      .flatMap(({ buckets }) => buckets.filter(([, , n]) => n > 0).flatMap(([l, r]) => [l, r]))
      .filter((v) => Math.abs(v) < 1e300);
    this.low = edges.reduce((a, b) => Math.min(a, b), Infinity);
    this.high = edges.reduce((a, b) => Math.max(a, b), -Infinity);
    if (!(this.low < this.high)) [this.low, this.high] = [(this.low || 0) - 0.5, (this.low || 0) + 0.5];
    this.draw();
  }

  /** Counts of a step spread over `n` even bins of the common range. */
  bins({ buckets }, n) {
    const bins = new Float64Array(n);
    const width = (this.high - this.low) / n;
    for (const [left, right, count] of buckets) {
      if (!(count > 0)) continue;
      const [l, r] = [Math.max(this.low, left), Math.min(this.high, Math.max(right, left + width * 1e-6))];
      const first = Math.max(0, Math.min(n - 1, Math.floor((l - this.low) / width)));
      const last = Math.max(first, Math.min(n - 1, Math.floor((r - this.low) / width)));
      for (let b = first; b <= last; b += 1) {
        const part = Math.min(r, this.low + (b + 1) * width) - Math.max(l, this.low + b * width);
        bins[b] += first === last ? count : count * Math.max(0, part / Math.max(r - l, 1e-300));
      }
    }
    return bins;
  }

  paint() {
    const { canvas } = this;
    fitCanvas(canvas);
    const context = canvas.getContext('2d');
    const ratio = pixelRatio();
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    const [width, height] = [canvas.clientWidth, canvas.clientHeight];
    context.clearRect(0, 0, width, height);
    const palette = colors();
    context.fillStyle = palette.muted;
    context.font = '11px system-ui, sans-serif';
    context.textBaseline = 'middle';
    if (!this.steps.length) return;
    if (this.mode === 'map') this.heatMap(context, palette, width - LEFT - RIGHT, height - TOP - BOTTOM);
    else this.ridges(context, palette, width - LEFT - RIGHT, height - TOP - BOTTOM);
  }

  heatMap(context, palette, w, h) {
    const { steps } = this;
    const n = Math.max(16, Math.min(48, Math.floor(h / 4)));
    const x = (i) => LEFT + (i / steps.length) * w;
    steps.forEach((step, i) => {
      const bins = this.bins(step, n);
      const most = Math.max(...bins, 1e-300);
      bins.forEach((value, b) => {
        if (value <= 0) return;
        context.fillStyle = mix(palette.surface, palette.accent, Math.sqrt(value / most));
        context.fillRect(x(i), TOP + h - ((b + 1) / n) * h, Math.ceil(x(i + 1) - x(i)), Math.ceil(h / n));
      });
    });
    context.fillStyle = palette.muted;
    context.textAlign = 'right';
    for (const share of [0, 0.5, 1])
      context.fillText(digits(this.low + share * (this.high - this.low)), LEFT - 6, TOP + h - share * (h - 6) - 3);
    context.textAlign = 'center';
    const every = Math.max(1, Math.ceil(steps.length / (w / 70)));
    steps.forEach((step, i) => {
      if (i % every === 0) context.fillText(String(step.step), x(i + 0.5), TOP + h + BOTTOM / 2 + 2);
    });
  }

  ridges(context, palette, w, h) {
    const shown = thin(this.steps, 24);
    const n = 64;
    const rise = h * 0.34;
    shown.forEach((step, i) => {
      const bins = this.bins(step, n);
      const most = Math.max(...bins, 1e-300);
      const base = TOP + rise + (shown.length > 1 ? (i / (shown.length - 1)) * (h - rise) : h - rise);
      context.beginPath();
      context.moveTo(LEFT, base);
      bins.forEach((value, b) => context.lineTo(LEFT + ((b + 0.5) / n) * w, base - (value / most) * rise));
      context.lineTo(LEFT + w, base);
      context.fillStyle = mix(palette.surface, palette.accent, 0.2 + (0.5 * i) / shown.length);
      context.fill();
      context.strokeStyle = palette.surface;
      context.stroke();
      if (i % Math.max(1, Math.ceil((shown.length * 14) / (h - rise))) === 0) {
        context.fillStyle = palette.muted;
        context.textAlign = 'right';
        context.fillText(String(step.step), LEFT - 6, base - 4);
      }
    });
    context.fillStyle = palette.muted;
    for (const [share, align] of [
      [0, 'left'],
      [0.5, 'center'],
      [1, 'right'],
    ]) {
      context.textAlign = align;
      context.fillText(digits(this.low + share * (this.high - this.low)), LEFT + share * w, TOP + h + BOTTOM / 2 + 2);
    }
  }

  point(event) {
    if (!this.steps.length || this.mode !== 'map') return;
    const share = (event.offsetX - LEFT) / (this.canvas.clientWidth - LEFT - RIGHT);
    const step = this.steps[Math.max(0, Math.min(this.steps.length - 1, Math.floor(share * this.steps.length)))];
    const total = step.buckets.reduce((sum, [, , n]) => sum + n, 0);
    const filled = step.buckets.filter(([, , n]) => n > 0);
    if (filled.length)
      showTooltip(event.clientX, event.clientY, [
        `step ${step.step}`,
        `${digits(total)} values from ${digits(filled[0][0])} to ${digits(filled.at(-1)[1])}`,
      ]);
  }
}

/** At most `most` of a list, evenly. */
function thin(list, most) {
  if (list.length <= most) return list;
  return Array.from({ length: most }, (_, i) => list[Math.round((i * (list.length - 1)) / (most - 1))]);
}
