// A layered layout of the open scopes of a graph. No canvas and no page in here: it runs in a worker.
//
// Every open scope is laid out by itself, inner ones first, and is then a box in the scope around it.
// Layers are topological, top to bottom; cycles (loops, or scopes that need each other) are cut where a
// depth-first search meets them. A layer that is too wide breaks into rows, a stack that is too tall
// into columns. Order within a layer comes
// from sweeps that move each box towards the middle of its neighbours.

const GAP_X = 14;
const GAP_Y = 30;
const PADDING = 12;
const HEADER = 20;
const HEIGHT = 26;
const COLUMN_GAP = 44;
/** Stacks taller than this may be folded. */
const FOLD_HEIGHT = 1300;
const SWEEPS = 4;

/** Width of a box that has room for its label. */
function labelWidth(model, item) {
  const label = model.label(item).length + (model.isScope(item) ? String(model.leaves[item]).length + 2 : 0);
  return Math.max(64, Math.min(190, label * 6.9 + 18));
}

/**
 * Lays out what is visible. Returns parallel arrays: `items` (a scope before what lies in it), `boxes`
 * (x, y, width, height of each), and the edges between positions in `items` with their bytes.
 */
export function layout(model, expanded) {
  const inner = lifted(model, expanded);
  const sizes = { w: new Float32Array(model.items), h: new Float32Array(model.items) };
  const offsets = { x: new Float32Array(model.items), y: new Float32Array(model.items) };
  const open = openScopes(model, expanded);
  for (let i = open.length - 1; i >= 0; i -= 1) {
    layoutScope(model, open[i], expanded, inner, sizes, offsets);
  }
  return placed(model, expanded, sizes, offsets);
}

/** The open scopes whose scopes are all open, outer before inner. */
function openScopes(model, expanded) {
  const open = [model.root];
  for (let i = 0; i < open.length; i += 1) {
    for (const child of model.children(open[i])) if (expanded.has(child)) open.push(child);
  }
  return open;
}

/** For every open scope its edges between children: from, to, from, to… */
function lifted(model, expanded) {
  const { edges, parent, depth } = model;
  const open = new Set(openScopes(model, expanded));
  const inner = new Map([...open].map((scope) => [scope, []]));
  for (let e = 0; e < edges.length; e += 3) {
    let [a, b] = [edges[e], edges[e + 1]];
    while (depth[a] > depth[b]) a = parent[a];
    while (depth[b] > depth[a]) b = parent[b];
    while (parent[a] !== parent[b]) [a, b] = [parent[a], parent[b]];
    if (a !== b && open.has(parent[a])) inner.get(parent[a]).push(a, b);
  }
  return inner;
}

function layoutScope(model, scope, expanded, inner, sizes, offsets) {
  const children = model.children(scope);
  const position = new Map();
  children.forEach((child, i) => {
    position.set(child, i);
    if (!expanded.has(child)) {
      sizes.w[child] = labelWidth(model, child);
      sizes.h[child] = HEIGHT;
    }
  });
  const graph = adjacency(children.length, inner.get(scope), position);
  const layer = layers(graph);
  const rows = breakRows(children, layer, graph, sizes);
  const x = order(children, rows, graph, sizes);
  const top = scope === model.root ? PADDING : HEADER + PADDING;
  const { width, height } = placeRows(children, rows, x, top, sizes, offsets);
  sizes.w[scope] = Math.max(width + 2 * PADDING, labelWidth(model, scope));
  sizes.h[scope] = Math.max(top + height + PADDING, HEIGHT);
}

/** Stacks the rows below `top`; a stack much taller than wide is folded into columns side by side. */
function placeRows(children, rows, x, top, sizes, offsets) {
  const tall = rows.map((row) => row.reduce((most, i) => Math.max(most, sizes.h[children[i]]), 0));
  const step = tall.map((h) => h + (h > HEIGHT ? GAP_Y * 1.4 : GAP_Y));
  const left = rows.map((row) => x[row[0]]);
  const right = rows.map((row) => x[row[row.length - 1]] + sizes.w[children[row[row.length - 1]]]);
  const total = step.reduce((sum, h) => sum + h, 0);
  const wide = rows.length ? Math.max(...spread(right)) - Math.min(...spread(left)) : 0;
  const isTall = total > FOLD_HEIGHT && total > 2 * wide;
  const limit = isTall ? total / Math.sqrt((1.4 * total) / (wide + COLUMN_GAP)) : Infinity;
  let [start, height] = [0, 0];
  let at = PADDING;
  while (start < rows.length) {
    let [end, y, least, most] = [start, 0, Infinity, -Infinity];
    while (end < rows.length && (end === start || y < limit)) {
      least = Math.min(least, left[end]);
      most = Math.max(most, right[end]);
      y += step[end];
      end += 1;
    }
    y = top;
    for (let r = start; r < end; r += 1) {
      for (const i of rows[r]) {
        offsets.x[children[i]] = x[i] - least + at;
        offsets.y[children[i]] = y + (tall[r] - sizes.h[children[i]]) / 2;
      }
      y += step[r];
    }
    height = Math.max(height, y - top - GAP_Y);
    at += most - least + COLUMN_GAP;
    start = end;
  }
  return { width: Math.max(0, at - COLUMN_GAP - PADDING), height: Math.max(0, height) };
}

/** Few enough values for the arguments of a call: of a long list every one that is an extreme of its part. */
function spread(values) {
  if (values.length < 10000) return values;
  const parts = [];
  for (let i = 0; i < values.length; i += 10000) {
    const part = values.slice(i, i + 10000);
    parts.push(Math.min(...part), Math.max(...part));
  }
  return parts;
}

/** Distinct neighbours of `n` boxes in both directions, as slices of one list each. */
function adjacency(n, pairs, position) {
  const keys = new Float64Array(pairs.length / 2);
  for (let i = 0; i < keys.length; i += 1) keys[i] = position.get(pairs[2 * i]) * n + position.get(pairs[2 * i + 1]);
  keys.sort();
  const from = [];
  const to = [];
  for (let i = 0; i < keys.length; i += 1) {
    if (i && keys[i] === keys[i - 1]) continue;
    from.push(Math.floor(keys[i] / n));
    to.push(keys[i] % n);
  }
  return { n, out: slices(n, from, to), into: slices(n, to, from) };
}

function slices(n, by, what) {
  const start = new Int32Array(n + 1);
  for (const i of by) start[i + 1] += 1;
  for (let i = 0; i < n; i += 1) start[i + 1] += start[i];
  const list = new Int32Array(by.length);
  const next = start.slice();
  for (let i = 0; i < by.length; i += 1) list[next[by[i]]++] = what[i];
  return { start, list };
}

/** The layer of every box: one more than the deepest that it needs; sources sink to their users. */
function layers({ n, out, into }) {
  const topological = withoutCycles(n, out, into);
  const { rank, sequence } = topological;
  const layer = new Int32Array(n);
  for (const i of sequence) {
    for (let e = out.start[i]; e < out.start[i + 1]; e += 1) {
      const j = out.list[e];
      if (rank[j] > rank[i]) layer[j] = Math.max(layer[j], layer[i] + 1);
    }
  }
  for (let s = n - 1; s >= 0; s -= 1) {
    const i = sequence[s];
    if (into.start[i] !== into.start[i + 1] || out.start[i] === out.start[i + 1]) continue;
    let least = Infinity;
    for (let e = out.start[i]; e < out.start[i + 1]; e += 1) least = Math.min(least, layer[out.list[e]]);
    layer[i] = Math.max(layer[i], least - 1);
  }
  return layer;
}

/** An order in which every edge but those that close a cycle goes forward. */
function withoutCycles(n, out, into) {
  const mark = new Uint8Array(n);
  const sequence = new Int32Array(n);
  const rank = new Int32Array(n);
  let at = n;
  const stack = [];
  const next = out.start.slice(0, n);
  const visit = (first) => {
    stack.push(first);
    mark[first] = 1;
    while (stack.length) {
      const i = stack[stack.length - 1];
      if (next[i] < out.start[i + 1]) {
        const j = out.list[next[i]++];
        if (!mark[j]) {
          mark[j] = 1;
          stack.push(j);
        }
      } else {
        stack.pop();
        at -= 1;
        sequence[at] = i;
        rank[i] = at;
      }
    }
  };
  // From the sources first, so that a cycle is entered where data enters it.
  for (let i = n - 1; i >= 0; i -= 1) if (!mark[i] && into.start[i] === into.start[i + 1]) visit(i);
  for (let i = 0; i < n; i += 1) if (!mark[i]) visit(i);
  return { sequence, rank };
}

/** Boxes by row. A layer much wider than the whole should be becomes several rows. */
function breakRows(children, layer, { n, out, into }, sizes) {
  const byLayer = [];
  const loose = [];
  let area = 0;
  for (let i = 0; i < n; i += 1) {
    area += (sizes.w[children[i]] + GAP_X) * (sizes.h[children[i]] + GAP_Y);
    if (out.start[i] === out.start[i + 1] && into.start[i] === into.start[i + 1]) loose.push(i);
    else (byLayer[layer[i]] ??= []).push(i);
  }
  if (loose.length) byLayer.push(loose);
  const limit = Math.max(900, Math.sqrt(area) * 1.6);
  const rows = [];
  for (const boxes of byLayer) {
    if (!boxes) continue;
    let row = [];
    let width = 0;
    for (const i of boxes) {
      if (row.length && width + sizes.w[children[i]] > limit) {
        rows.push(row);
        [row, width] = [[], 0];
      }
      row.push(i);
      width += sizes.w[children[i]] + GAP_X;
    }
    if (row.length) rows.push(row);
  }
  return rows;
}

/** Orders the rows and returns the left edge of every box. */
function order(children, rows, { n, out, into }, sizes) {
  const x = new Float32Array(n);
  const w = Float32Array.from(children, (child) => sizes.w[child]);
  const middle = new Float32Array(n);
  for (const row of rows) pack(row, x, w);
  for (let sweep = 0; sweep < SWEEPS; sweep += 1) {
    const down = sweep % 2 === 0;
    for (let r = 0; r < rows.length; r += 1) {
      const row = rows[down ? r : rows.length - 1 - r];
      const [first, second] = down ? [into, out] : [out, into];
      for (const i of row) middle[i] = barycentre(i, first, x, w) ?? barycentre(i, second, x, w) ?? x[i] + w[i] / 2;
      row.sort((a, b) => middle[a] - middle[b] || a - b);
      settle(row, x, w, middle);
    }
  }
  return x;
}

function barycentre(i, { start, list }, x, w) {
  if (start[i] === start[i + 1]) return null;
  let sum = 0;
  for (let e = start[i]; e < start[i + 1]; e += 1) sum += x[list[e]] + w[list[e]] / 2;
  return sum / (start[i + 1] - start[i]);
}

/** Side by side around zero. */
function pack(row, x, w) {
  let total = -GAP_X;
  for (const i of row) total += w[i] + GAP_X;
  let at = -total / 2;
  for (const i of row) {
    x[i] = at;
    at += w[i] + GAP_X;
  }
}

/** As near to the wished middles as the order allows: runs of touching boxes share their mean error. */
function settle(row, x, w, middle) {
  const blocks = [];
  for (const i of row) {
    let block = { first: middle[i] - w[i] / 2, width: w[i] + GAP_X, boxes: 1, sum: middle[i] - w[i] / 2 };
    while (blocks.length) {
      const last = blocks[blocks.length - 1];
      if (last.first + last.width <= block.first) break;
      blocks.pop();
      const boxes = last.boxes + block.boxes;
      const sum = last.sum + block.sum - last.width * block.boxes;
      block = { first: sum / boxes, width: last.width + block.width, boxes, sum };
    }
    blocks.push(block);
  }
  let at = 0;
  for (const block of blocks) {
    let left = block.first;
    for (let k = 0; k < block.boxes; k += 1) {
      x[row[at]] = left;
      left += w[row[at]] + GAP_X;
      at += 1;
    }
  }
}

/** Absolute boxes of everything visible, and the edges between them. */
function placed(model, expanded, sizes, offsets) {
  const items = [];
  const slot = new Int32Array(model.items).fill(-1);
  const absolute = { x: new Float32Array(model.items), y: new Float32Array(model.items) };
  const queue = [model.root];
  for (let q = 0; q < queue.length; q += 1) {
    for (const child of model.children(queue[q])) {
      absolute.x[child] = absolute.x[queue[q]] + offsets.x[child];
      absolute.y[child] = absolute.y[queue[q]] + offsets.y[child];
      slot[child] = items.length;
      items.push(child);
      if (expanded.has(child)) queue.push(child);
    }
  }
  const boxes = new Float32Array(items.length * 4);
  items.forEach((item, i) => boxes.set([absolute.x[item], absolute.y[item], sizes.w[item], sizes.h[item]], 4 * i));
  const { from, to, bytes } = visibleEdges(model, expanded, slot);
  return {
    items: Int32Array.from(items),
    boxes,
    from,
    to,
    bytes,
    width: sizes.w[model.root],
    height: sizes.h[model.root],
  };
}

function visibleEdges(model, expanded, slot) {
  const { edges } = model;
  const stands = new Int32Array(model.nodes);
  for (let i = 0; i < model.nodes; i += 1) stands[i] = slot[model.visible(i, expanded)];
  const size = Math.max(1, slot.length);
  const found = new Map();
  for (let e = 0; e < edges.length; e += 3) {
    const [a, b] = [stands[edges[e]], stands[edges[e + 1]]];
    if (a === b) continue;
    const key = a * size + b;
    const known = found.get(key);
    found.set(key, known === undefined || known < 0 ? edges[e + 2] : known + Math.max(0, edges[e + 2]));
  }
  const [from, to, bytes] = [new Int32Array(found.size), new Int32Array(found.size), new Float64Array(found.size)];
  let i = 0;
  for (const [key, sum] of found) {
    from[i] = Math.floor(key / size);
    to[i] = key % size;
    bytes[i] = sum;
    i += 1;
  }
  return { from, to, bytes };
}
