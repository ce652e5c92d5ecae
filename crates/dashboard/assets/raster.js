// A picture as an array of pixels, for what a canvas is too slow for: tens of thousands of small boxes
// and lines a frame. Boxes have whole pixels; lines add up to a density that becomes a colour at the end.

import { rgb } from './ui.js';

/** The 32 bits of a `#rrggbb` as they lie in an image. */
export function packed(hex) {
  const [r, g, b] = rgb(hex);
  return ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0;
}

export class Raster {
  /** Sizes the picture; its content is lost. */
  resize(width, height) {
    if (this.width === width && this.height === height) return;
    Object.assign(this, { width, height });
    this.image = new ImageData(width, height);
    this.pixels = new Uint32Array(this.image.data.buffer);
    this.density = new Uint16Array(width * height);
  }

  clear(color) {
    this.pixels.fill(color);
  }

  /** Fills [x0, x1) x [y0, y1), cut to the picture. */
  box(x0, y0, x1, y1, color) {
    const { width, height, pixels } = this;
    if (x0 < 0) x0 = 0;
    if (y0 < 0) y0 = 0;
    if (x1 > width) x1 = width;
    if (y1 > height) y1 = height;
    if (x1 - x0 === 1) {
      for (let at = y0 * width + x0, y = y0; y < y1; y += 1, at += width) pixels[at] = color;
      return;
    }
    if (x0 >= x1) return;
    for (let y = y0; y < y1; y += 1) pixels.fill(color, y * width + x0, y * width + x1);
  }

  /** The outline of a box, one pixel wide. */
  frame(x0, y0, x1, y1, color) {
    this.box(x0, y0, x1, y0 + 1, color);
    this.box(x0, y1 - 1, x1, y1, color);
    this.box(x0, y0, x0 + 1, y1, color);
    this.box(x1 - 1, y0, x1, y1, color);
  }

  /** Adds `weight` to the density along a line; returns the number of pixels touched. */
  line(x0, y0, x1, y1, weight) {
    const { width, height, density } = this;
    // Clip to the picture by Liang and Barsky.
    let [t0, t1] = [0, 1];
    const [dx, dy] = [x1 - x0, y1 - y0];
    const right = width - 1.001;
    const bottom = height - 1.001;
    if (dx === 0) {
      if (x0 < 0 || x0 > right) return 0;
    } else {
      const [a, b] = [-x0 / dx, (right - x0) / dx];
      t0 = Math.max(t0, Math.min(a, b));
      t1 = Math.min(t1, Math.max(a, b));
    }
    if (dy === 0) {
      if (y0 < 0 || y0 > bottom) return 0;
    } else {
      const [a, b] = [-y0 / dy, (bottom - y0) / dy];
      t0 = Math.max(t0, Math.min(a, b));
      t1 = Math.min(t1, Math.max(a, b));
    }
    if (t0 > t1) return 0;
    let x = x0 + t0 * dx;
    let y = y0 + t0 * dy;
    const steps = Math.ceil(Math.max(Math.abs(dx), Math.abs(dy)) * (t1 - t0));
    if (steps > 0) {
      const sx = (dx * (t1 - t0)) / steps;
      const sy = (dy * (t1 - t0)) / steps;
      for (let i = 0; i < steps; i += 1) {
        density[(y | 0) * width + (x | 0)] += weight;
        x += sx;
        y += sy;
      }
    }
    return steps + 1;
  }

  /** Blends the lines so far with `color` into the picture: the denser, the stronger. */
  blendLines(color, strength) {
    const { density, pixels } = this;
    const share = new Uint16Array(256);
    for (let i = 0; i < 256; i += 1) share[i] = Math.round(256 * Math.min(0.85, 1 - (1 - strength) ** i));
    // Red and blue are blended in one multiplication, since eight bits lie free above each.
    const [redBlue, green] = [color & 0xff00ff, (color >>> 8) & 255];
    for (let i = 0; i < density.length; i += 1) {
      const d = density[i];
      if (d === 0) continue;
      density[i] = 0;
      const a = share[d > 255 ? 255 : d];
      const p = pixels[i];
      const both = ((p & 0xff00ff) * (256 - a) + redBlue * a) >>> 8;
      const g = (((p >>> 8) & 255) * (256 - a) + green * a) >>> 8;
      pixels[i] = (0xff000000 | (both & 0xff00ff) | (g << 8)) >>> 0;
    }
  }

  /** Puts the picture at the corner of a canvas of its size. */
  show(context) {
    context.putImageData(this.image, 0, 0);
  }
}
