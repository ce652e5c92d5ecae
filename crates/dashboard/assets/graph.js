// The graph's tab: tree, canvas and details share one selection and one set of open scopes.

import { api, bytes, choice, colors, count, empty, fill, h, heat, isAbort, seconds, short } from './ui.js';
import { GraphCanvas } from './graph_canvas.js';
import { GraphModel } from './graph_model.js';
import { Tree } from './tree.js';

const OPEN_AT_START_MAX = 24;
const LISTED_MAX = 60;
const OPS_COLOURED = 11;

export class GraphView {
  constructor(root) {
    this.root = root;
    root.className = 'view fixed graph';
    this.mode = 'device';
    this.expanded = new Set();
    this.selected = -1;
    this.requests = 0;
    this.build();
    document.addEventListener('themechange', () => this.model && this.recolor());
  }

  build() {
    this.input = h('input', {
      type: 'search',
      placeholder: 'Find a node  ( / )',
      'aria-label': 'Find a node',
      role: 'combobox',
      'aria-expanded': 'false',
      'aria-controls': 'graph-found',
      autocomplete: 'off',
      spellcheck: 'false',
      oninput: () => this.find(),
      onkeydown: (event) => this.searchKey(event),
      onblur: () => setTimeout(() => this.closeSearch(), 150),
    });
    this.found = h('ul', {
      class: 'search-list',
      id: 'graph-found',
      role: 'listbox',
      'aria-label': 'Nodes found',
      hidden: true,
    });
    this.summary = h('span', { class: 'muted' });
    this.reload = h('button', { onclick: () => this.load(), title: 'Ask for the graph again' }, 'Reload');
    const toolbar = h(
      'div',
      { class: 'toolbar' },
      h('div', { class: 'search' }, this.input, this.found),
      choice(
        'Colour by',
        [
          ['device', 'device'],
          ['op', 'op type'],
          ['time', 'time'],
        ],
        this.mode,
        (mode) => this.setMode(mode),
      ),
      h('button', { onclick: () => this.expandAll() }, 'Expand all'),
      h('button', { onclick: () => this.collapseAll() }, 'Collapse all'),
      h('span', { class: 'grow' }),
      this.summary,
      this.reload,
    );
    const treeRoot = h('div', { class: 'tree' });
    const canvas = h('canvas', {
      tabindex: '0',
      role: 'img',
      'aria-label':
        'Drawing of the graph. Arrows pan, plus and minus zoom, Enter expands the selected scope. The tree beside it lists the same.',
    });
    this.legend = h('div', { class: 'overlay graph-legend' });
    this.busy = h('div', { class: 'overlay graph-busy', role: 'status', hidden: true }, 'Laying out …');
    const button = (text, label, action) => h('button', { 'aria-label': label, title: label, onclick: action }, text);
    this.details = h('div', { class: 'details', 'aria-live': 'polite' }, empty('Select a node or a scope.'));
    fill(
      this.root,
      toolbar,
      h(
        'div',
        { class: 'graph-body' },
        h('section', { class: 'card', 'aria-label': 'Tree of the graph' }, treeRoot),
        h(
          'div',
          { class: 'graph-canvas' },
          canvas,
          this.legend,
          this.busy,
          h(
            'div',
            { class: 'overlay graph-zoom' },
            button('+', 'Zoom in', () => this.canvas.zoom(1.35)),
            button('−', 'Zoom out', () => this.canvas.zoom(1 / 1.35)),
            button('⤢', 'Show all', () => this.canvas.fit()),
          ),
        ),
        h('section', { class: 'card', 'aria-label': 'Details of the selection' }, this.details),
      ),
    );
    const events = {
      select: (item) => this.select(item),
      toggle: (item) => this.toggle(item),
      describe: (item) => this.describe(item),
      open: (item) => this.goTo(item),
    };
    this.canvas = new GraphCanvas(canvas, events);
    this.tree = new Tree(treeRoot, events);
    this.tree.color = (item) => (this.model.isScope(item) ? null : this.color(item));
  }

  show() {
    if (!this.graph && !this.loading) this.load();
    this.canvas.draw();
  }

  hide() {
    this.loading?.abort();
    this.loading = null;
    this.canvas.unhover();
  }

  search() {
    this.input.focus();
    this.input.select();
  }

  key(event) {
    const step = 60;
    const { canvas } = this;
    const actions = {
      ArrowLeft: () => canvas.pan(step, 0),
      ArrowRight: () => canvas.pan(-step, 0),
      ArrowUp: () => canvas.pan(0, step),
      ArrowDown: () => canvas.pan(0, -step),
      '+': () => canvas.zoom(1.25),
      '=': () => canvas.zoom(1.25),
      '-': () => canvas.zoom(0.8),
      0: () => canvas.fit(),
      Enter: () => this.selected >= 0 && this.model.isScope(this.selected) && this.toggle(this.selected),
      Escape: () => this.select(-1),
    };
    if (event.key === 'Enter' && event.target.closest?.('button, a')) return false;
    if (event.target.getAttribute?.('role') === 'radio' || !actions[event.key] || !this.model) return false;
    actions[event.key]();
    return true;
  }

  async load() {
    this.loading?.abort();
    this.loading = new AbortController();
    try {
      const graph = await api('graph', { signal: this.loading.signal });
      this.set(graph);
    } catch (error) {
      if (!isAbort(error)) fill(this.details, h('p', { class: 'error' }, error.message));
    } finally {
      this.loading = null;
    }
  }

  set(graph) {
    this.graph = graph;
    // Bytes may exceed 32 bits, hence floats.
    const edges = Float64Array.from(graph.edges);
    this.model = new GraphModel(graph.name, edges);
    this.aggregate();
    this.worker?.terminate();
    this.worker = new Worker(new URL('graph_worker.js', import.meta.url), { type: 'module' });
    this.worker.onmessage = ({ data }) => this.onLayout(data);
    this.worker.onerror = (event) =>
      fill(this.details, h('p', { class: 'error' }, `the layout failed: ${event.message}`));
    this.worker.postMessage({ names: graph.name, edges });
    this.expanded = this.openAtStart();
    this.select(-1);
    this.relayout({ fit: true });
  }

  /** Opens the smallest scopes first while not much is on screen. */
  openAtStart() {
    const { model } = this;
    const expanded = new Set();
    let shown = model.children(model.root).length;
    const next = [model.root];
    while (next.length) {
      const scopes = next
        .flatMap((item) => [...model.children(item)])
        .filter((i) => model.isScope(i) && !expanded.has(i));
      scopes.sort((a, b) => model.children(a).length - model.children(b).length);
      const scope = scopes[0];
      if (scope === undefined || shown + model.children(scope).length > OPEN_AT_START_MAX) break;
      expanded.add(scope);
      next.push(scope);
      shown += model.children(scope).length;
    }
    return expanded;
  }

  /** Time, bytes and devices of scopes. */
  aggregate() {
    const { model, graph } = this;
    this.seconds = new Float64Array(model.items);
    this.bytes = new Float64Array(model.items);
    this.byDevice = new Map();
    const opCounts = new Float64Array(graph.ops.length);
    for (let i = 0; i < model.nodes; i += 1) {
      opCounts[graph.op[i]] += 1;
      for (let at = i; at >= 0; at = model.parent[at]) {
        this.seconds[at] += graph.seconds[i] || 0;
        this.bytes[at] += graph.bytes[i] || 0;
        if (at < model.nodes) continue;
        const of = this.tally(at);
        of.device.set(graph.device[i], (of.device.get(graph.device[i]) ?? 0) + 1);
        of.op.set(graph.op[i], (of.op.get(graph.op[i]) ?? 0) + 1);
      }
    }
    const often = [...opCounts.keys()].sort((a, b) => opCounts[b] - opCounts[a] || a - b);
    this.opRank = new Map(often.slice(0, OPS_COLOURED).map((op, rank) => [op, rank]));
    const times = graph.seconds.filter((s) => s > 0).sort((a, b) => a - b);
    this.timeRange = times.length ? [Math.max(times[0], times.at(-1) / 1e5), times.at(-1)] : null;
    this.hasTimes = times.length > 0;
  }

  tally(scope) {
    if (!this.byDevice.has(scope)) this.byDevice.set(scope, { device: new Map(), op: new Map() });
    return this.byDevice.get(scope);
  }

  setMode(mode) {
    this.mode = mode;
    if (this.model) this.recolor();
  }

  kindColor(mode, value) {
    const { series } = colors();
    if (mode === 'device') return value < 0 ? colors().muted : series[value % series.length];
    const rank = this.opRank.get(value);
    return rank === undefined ? series[11] : series[rank];
  }

  color(item) {
    if (this.mode === 'time') return this.timeColor(this.seconds[item]);
    if (!this.model.isScope(item)) return this.kindColor(this.mode, this.graph[this.mode][item]);
    return this.kindColor(this.mode, most(this.tally(item)[this.mode]));
  }

  timeColor(time) {
    if (!this.timeRange || !(time > 0)) return colors().heat[0];
    const [low, high] = this.timeRange.map(Math.log);
    return heat((Math.log(time) - low) / Math.max(1e-9, high - low));
  }

  shares(item) {
    if (this.mode === 'time') return [[this.timeColor(this.seconds[item]), 1]];
    const of = [...this.tally(item)[this.mode]].sort((a, b) => b[1] - a[1]).slice(0, 8);
    return of.map(([value, n]) => [this.kindColor(this.mode, value), n / this.model.leaves[item]]);
  }

  recolor() {
    this.canvas.setColors(
      (item) => this.color(item),
      (item) => this.shares(item),
    );
    this.tree.draw();
    const entry = (css, text) => {
      const swatch = h('span', { class: 'swatch' });
      swatch.style.background = css;
      return h('span', {}, swatch, text);
    };
    if (this.mode === 'time') {
      const [low, high] = this.timeRange ?? [0, 0];
      fill(
        this.legend,
        this.hasTimes
          ? [
              h('div', { class: 'graph-scale' }),
              h('div', {}, h('span', {}, seconds(low)), h('span', {}, seconds(high))),
            ]
          : 'no times are known yet',
      );
      return;
    }
    let entries;
    if (this.mode === 'device') {
      entries = this.graph.devices
        .slice(0, 24)
        .map((name, i) => entry(this.kindColor('device', i), short(name) || 'not placed'));
      if (this.graph.devices.length > 24) entries.push(h('span', {}, `and ${this.graph.devices.length - 24} more`));
    } else {
      entries = [...this.opRank].map(([op, rank]) => entry(colors().series[rank], this.graph.ops[op]));
      if (this.graph.ops.length > OPS_COLOURED) entries.push(entry(colors().series[11], 'other ops'));
    }
    fill(this.legend, h('div', { class: 'legend' }, entries));
  }

  relayout({ fit = false, anchor, centre } = {}) {
    this.requests += 1;
    this.pending = { request: this.requests, fit, anchor, centre, expanded: new Set(this.expanded) };
    this.worker.postMessage({ request: this.requests, expanded: [...this.expanded] });
    this.tree.set(this.model, this.expanded);
    clearTimeout(this.busyTimer);
    this.busyTimer = setTimeout(() => {
      this.busy.hidden = false;
    }, 250);
  }

  onLayout(layout) {
    if (layout.request !== this.pending?.request) return;
    clearTimeout(this.busyTimer);
    this.busy.hidden = true;
    const { fit, anchor, centre, expanded } = this.pending;
    this.canvas.color = (item) => this.color(item);
    this.canvas.setLayout(layout, this.model, expanded, anchor);
    this.recolor();
    if (fit) this.canvas.fit();
    if (centre !== undefined) this.canvas.centre(centre);
    const { nodes } = this.model;
    this.summary.textContent = `${count(nodes)} nodes, ${count(this.graph.edges.length / 3)} edges; ${count(layout.items.length)} boxes drawn`;
    const { truncated } = this.graph;
    if (truncated)
      this.summary.textContent = `the first ${this.summary.textContent} of a graph of ${count(truncated.nodes)} nodes and ${count(truncated.edges)} edges`;
    this.summary.title = this.summary.textContent;
    this.root.dataset.boxes = layout.items.length;
  }

  toggle(scope) {
    if (this.expanded.has(scope)) this.expanded.delete(scope);
    else this.expanded.add(scope);
    this.relayout({ anchor: scope });
    this.tree.select(this.selected, true);
  }

  expandAll() {
    if (!this.model) return;
    for (let i = this.model.nodes + 1; i < this.model.items; i += 1) this.expanded.add(i);
    this.relayout({ fit: true });
  }

  collapseAll() {
    if (!this.model) return;
    this.expanded.clear();
    this.relayout({ fit: true });
  }

  /** Opens the scopes around an item, selects it and brings it to the middle. */
  goTo(item) {
    let changed = false;
    for (let at = this.model.parent[item]; at >= 0 && at !== this.model.root; at = this.model.parent[at]) {
      if (!this.expanded.has(at)) changed = true;
      this.expanded.add(at);
    }
    if (changed) this.relayout({ centre: item });
    else this.canvas.centre(item);
    this.select(item);
  }

  select(item) {
    this.selected = item;
    this.canvas.select(item);
    this.tree.select(item);
    this.root.dataset.selected = item >= 0 ? this.model.name(item) : '';
    if (item < 0) fill(this.details, this.model ? this.graphDetails() : empty('No graph is here yet.'));
    else fill(this.details, this.model.isScope(item) ? this.scopeDetails(item) : this.nodeDetails(item));
    this.details.scrollTop = 0;
  }

  describe(item) {
    const { graph, model } = this;
    if (model.isScope(item))
      return [model.name(item), `${count(model.leaves[item])} nodes, ${seconds(this.seconds[item])}`];
    return [
      model.name(item),
      graph.ops[graph.op[item]],
      short(graph.devices[graph.device[item]] || 'not placed'),
      seconds(graph.seconds[item]),
    ];
  }

  nodeDetails(item) {
    const { graph, model } = this;
    const reason = graph.reason?.[item];
    return [
      h('p', { class: 'name' }, model.name(item)),
      list([
        ['op', graph.ops[graph.op[item]]],
        ['device', graph.devices[graph.device[item]] || 'not placed'],
        ['placed by', reason || null],
        ['time', graph.seconds[item] > 0 ? `${seconds(graph.seconds[item])}${this.rankText(item)}` : 'not known'],
        ['output', graph.bytes[item] > 0 ? bytes(graph.bytes[item]) : 'not known'],
      ]),
      this.neighbours('Inputs', item, 'in'),
      this.neighbours('Outputs', item, 'out'),
    ];
  }

  rankText(item) {
    const all = this.seconds[this.model.root];
    return all > 0 ? `, ${((100 * this.seconds[item]) / all).toFixed(1)}% of all` : '';
  }

  /** What there is to say while nothing is selected. */
  graphDetails() {
    const { model, graph } = this;
    return [
      h('p', { class: 'name' }, 'The whole graph'),
      list([
        ['nodes', count(model.nodes)],
        ['edges', count(graph.edges.length / 3)],
        ['scopes', count(model.items - model.nodes - 1)],
        ['time', this.hasTimes ? seconds(this.seconds[model.root]) : 'not known'],
      ]),
      this.shareLists(model.root),
      empty('Click a box, or move in the tree with the arrows.'),
    ];
  }

  shareLists(item) {
    const { graph } = this;
    const of = this.tally(item);
    const shares = (kind, names) =>
      [...of[kind]]
        .sort((a, b) => b[1] - a[1])
        .slice(0, 8)
        .map(([value, n]) => {
          const swatch = h('span', { class: 'swatch' });
          swatch.style.background = this.kindColor(kind, value);
          return h('li', {}, h('span', {}, swatch, short(names[value] || 'not placed')), h('small', {}, count(n)));
        });
    return [
      h('h3', {}, 'Devices'),
      h('ul', {}, shares('device', graph.devices)),
      h('h3', {}, 'Ops'),
      h('ul', {}, shares('op', graph.ops)),
    ];
  }

  scopeDetails(item) {
    const { model } = this;
    return [
      h('p', { class: 'name' }, model.name(item)),
      list([
        ['nodes', count(model.leaves[item])],
        ['time', this.seconds[item] > 0 ? seconds(this.seconds[item]) + this.rankText(item) : 'not known'],
        ['outputs', this.bytes[item] > 0 ? bytes(this.bytes[item]) : 'not known'],
      ]),
      h('button', { onclick: () => this.toggle(item) }, 'Expand or collapse'),
      this.shareLists(item),
      this.neighbours('Inputs', item, 'in'),
      this.neighbours('Outputs', item, 'out'),
    ];
  }

  neighbours(title, item, direction) {
    const found = this.model.neighbours(item, direction);
    const row = ([node, size]) =>
      h(
        'li',
        {},
        h(
          'button',
          { class: 'link', title: this.model.name(node), onclick: () => this.goTo(node) },
          this.model.name(node),
        ),
        h('small', {}, size < 0 ? 'control' : bytes(size)),
      );
    const more = found.length - LISTED_MAX;
    return [
      h('h3', {}, `${title} (${count(found.length)})`),
      h('ul', {}, found.slice(0, LISTED_MAX).map(row)),
      more > 0 ? h('p', { class: 'muted' }, `and ${count(more)} more`) : null,
    ];
  }

  find() {
    const words = this.input.value.trim().toLowerCase().split(/\s+/).filter(Boolean);
    this.hits = [];
    if (!words.length || !this.model) {
      this.closeSearch();
      return;
    }
    const { model, graph } = this;
    const matches = (text) => words.every((word) => text.includes(word));
    const better = (item) => {
      const name = model.name(item).toLowerCase();
      return name === words[0] ? 0 : name.endsWith(`/${words[0]}`) || name.startsWith(words[0]) ? 1 : 2;
    };
    for (let i = 0; i < model.items && this.hits.length < 400; i += 1) {
      if (i === model.root) continue;
      const op = model.isScope(i) ? 'scope' : graph.ops[graph.op[i]];
      if (matches(`${model.name(i)} ${op}`.toLowerCase())) this.hits.push(i);
    }
    this.hits.sort((a, b) => better(a) - better(b) || a - b);
    this.hits.length = Math.min(this.hits.length, 40);
    this.chosen = 0;
    this.paintHits();
  }

  paintHits() {
    this.found.hidden = false;
    this.input.setAttribute('aria-expanded', 'true');
    const { model, graph } = this;
    fill(
      this.found,
      this.hits.length
        ? this.hits.map((item, i) =>
            h(
              'li',
              {
                role: 'option',
                id: `found-${i}`,
                'aria-selected': String(i === this.chosen),
                onmousedown: () => this.take(i),
              },
              h('span', {}, model.name(item)),
              h('span', { class: 'muted' }, model.isScope(item) ? 'scope' : graph.ops[graph.op[item]]),
            ),
          )
        : h('li', {}, 'nothing of that name'),
    );
    this.input.setAttribute('aria-activedescendant', `found-${this.chosen}`);
    this.found.children[this.chosen]?.scrollIntoView({ block: 'nearest' });
  }

  searchKey(event) {
    if (event.key === 'Escape') {
      this.closeSearch();
      this.input.blur();
    } else if (event.key === 'Enter') this.take(this.chosen);
    else if ((event.key === 'ArrowDown' || event.key === 'ArrowUp') && this.hits?.length) {
      this.chosen = (this.chosen + (event.key === 'ArrowDown' ? 1 : -1) + this.hits.length) % this.hits.length;
      this.paintHits();
    } else return;
    event.preventDefault();
    event.stopPropagation();
  }

  take(i) {
    const item = this.hits?.[i];
    if (item === undefined) return;
    this.closeSearch();
    this.input.blur();
    this.goTo(item);
  }

  closeSearch() {
    this.found.hidden = true;
    this.input.setAttribute('aria-expanded', 'false');
    this.input.removeAttribute('aria-activedescendant');
  }
}

function most(counts) {
  let [best, at] = [-1, -1];
  for (const [value, n] of counts) if (n > best) [best, at] = [n, value];
  return at;
}

function list(entries) {
  return h(
    'dl',
    {},
    entries.filter(([, value]) => value).map(([key, value]) => [h('dt', {}, key), h('dd', {}, value)]),
  );
}
