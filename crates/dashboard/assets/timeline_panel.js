// A timeline with its details and tables. The timeline's tab shows traced steps in it, the simulation's
// tab what it foresees.

import {
  bytes,
  card,
  colors,
  count,
  empty,
  fill,
  h,
  hideTooltip,
  mix,
  percent,
  seconds,
  short,
  showTooltip,
  table,
} from './ui.js';
import { PIECE_COLOR, TimelineCanvas } from './timeline_canvas.js';

const ROWS_MAX = 200;
const PARTS_MAX = 40;

export class TimelinePanel {
  /** Adds a toolbar, the timeline and cards of tables to `root`. */
  constructor(root) {
    this.step = null;
    const canvas = h('canvas', {
      tabindex: '0',
      role: 'img',
      'aria-label':
        'Timeline of the step, a row for each lane of a device. Arrows pan, plus and minus zoom, n and p go from span to span, c along the critical path.',
    });
    this.canvas = new TimelineCanvas(canvas, { select: (span) => this.select(span) });
    this.details = h('div', { class: 'details', 'aria-live': 'polite' }, empty('Select a span.'));
    this.search = h('input', {
      type: 'search',
      placeholder: 'Find a span  ( / )',
      'aria-label': 'Find a span',
      onkeydown: (event) => this.searchKey(event),
    });
    const button = (text, label, action) =>
      h('button', { class: 'icon-button', 'aria-label': label, title: label, onclick: action }, text);
    this.toolbar = h(
      'div',
      { class: 'toolbar' },
      this.search,
      h(
        'label',
        {},
        h('input', { type: 'checkbox', onchange: (event) => this.dim(event.target.checked) }),
        'only the critical path',
      ),
      (this.legend = h('div', { class: 'legend grow' })),
      h('span', { class: 'muted hint' }, 'wheel zooms, drag pans'),
      button('+', 'Zoom in', () => this.canvas.zoom(1.5)),
      button('−', 'Zoom out', () => this.canvas.zoom(1 / 1.5)),
      button('⤢', 'Show the whole step', () => this.canvas.fit()),
    );
    this.cards = h('div', { class: 'cards' });
    root.append(
      this.toolbar,
      h(
        'div',
        { class: 'timeline-main' },
        h('div', { class: 'timeline-box' }, canvas),
        h('section', { class: 'card', 'aria-label': 'Details of the selection' }, this.details),
      ),
      this.cards,
    );
    this.paintLegend();
    document.addEventListener('themechange', () => {
      this.paintLegend();
      if (this.step) this.paintCards();
    });
  }

  /** Shows a step. */
  set(step) {
    this.step = step;
    this.piece = -1;
    this.canvas.set(step);
    this.select(this.canvas.selected);
    this.paintCards();
  }

  clear() {
    this.step = null;
    this.canvas.step = null;
    this.canvas.draw();
    fill(this.cards);
    fill(this.details, empty('Select a span.'));
  }

  dim(is) {
    this.canvas.onlyCritical = is;
    this.canvas.draw();
  }

  paintLegend() {
    const entry = (name, text) => h('span', {}, swatch(colors()[name]), text);
    fill(
      this.legend,
      entry('compute', 'compute'),
      entry('transfer', 'transfer'),
      entry('wait', 'wait'),
      entry('dispatch', 'dispatch'),
      entry('critical', 'critical'),
      h('span', {}, swatch(mix(colors().surface, colors().compute, 0.22)), 'ready, not started'),
    );
  }

  key(event) {
    if (!this.step) return false;
    const { canvas } = this;
    const actions = {
      ArrowLeft: () => canvas.pan(80, 0),
      ArrowRight: () => canvas.pan(-80, 0),
      ArrowUp: () => canvas.pan(0, 40),
      ArrowDown: () => canvas.pan(0, -40),
      '+': () => canvas.zoom(1.4),
      '=': () => canvas.zoom(1.4),
      '-': () => canvas.zoom(1 / 1.4),
      0: () => canvas.fit(),
      n: () => this.goTo(canvas.neighbour(1)),
      p: () => this.goTo(canvas.neighbour(-1)),
      c: () => this.nextPiece(),
      Escape: () => this.select(-1),
    };
    if (!actions[event.key] || event.target.getAttribute?.('role') === 'radio' || event.target.type === 'range')
      return false;
    actions[event.key]();
    return true;
  }

  focusSearch() {
    this.search.focus();
    this.search.select();
  }

  searchKey(event) {
    if (event.key !== 'Enter' || !this.step) return;
    event.preventDefault();
    const words = this.search.value.trim().toLowerCase();
    const { timeline } = this.step;
    if (!words) return;
    for (let i = 1; i <= timeline.length; i += 1) {
      const at = (this.canvas.selected + i + timeline.length) % timeline.length;
      if (`${timeline[at].name} ${timeline[at].op}`.toLowerCase().includes(words)) {
        this.goTo(at);
        return;
      }
    }
    fill(this.details, empty(`No span has “${words}” in its name or op.`));
  }

  nextPiece() {
    const path = this.step.critical_path;
    if (!path.length) return;
    this.piece = (this.piece + 1) % path.length;
    this.toPiece(this.piece);
  }

  toPiece(i) {
    const piece = this.step.critical_path[i];
    this.piece = i;
    if (piece.span !== null && piece.span !== undefined) this.goTo(piece.span);
    else this.canvas.revealTime(piece.start, piece.end);
  }

  goTo(span) {
    if (span < 0) return;
    this.select(span);
    this.canvas.reveal(span);
  }

  device(i) {
    return short(this.step.devices[i]?.name ?? '');
  }

  select(at) {
    this.canvas.select(at);
    const span = this.step?.timeline[at];
    this.canvas.canvas.dataset.selected = span?.name ?? '';
    if (!span) {
      fill(this.details, this.step ? this.summary() : empty('No step is shown.'));
      return;
    }
    const entries = [
      ['op', span.op],
      ['kind', span.kind],
      ['device', this.device(span.device)],
      ['lane', String(span.lane)],
      ['start', seconds(span.start)],
      ['takes', seconds(span.end - span.start)],
      ['waited', seconds(span.start - (span.ready ?? span.start))],
    ];
    if (span.from !== undefined && span.from !== null) entries.push(['from', this.device(span.from)]);
    if (span.bytes !== undefined && span.bytes !== null) entries.push(['bytes', bytes(span.bytes)]);
    if (span.bytes > 0 && span.end > span.start)
      entries.push(['rate', `${bytes(span.bytes / (span.end - span.start))}/s`]);
    if (this.canvas.isCritical[at]) entries.push(['critical', 'yes']);
    const link = (i) =>
      h(
        'li',
        {},
        h('button', { class: 'link', onclick: () => this.goTo(i) }, this.step.timeline[i].name),
        h('small', {}, this.device(this.step.timeline[i].device)),
      );
    const consumers = this.canvas.consumersOf(at);
    fill(
      this.details,
      h('p', { class: 'name' }, span.name),
      h(
        'dl',
        {},
        entries.filter(([, value]) => value).map(([key, value]) => [h('dt', {}, key), h('dd', {}, value)]),
      ),
      span.cause !== null && span.cause >= 0 ? [h('h3', {}, 'Ready after'), h('ul', {}, link(span.cause))] : null,
      consumers.length ? [h('h3', {}, 'Made ready'), h('ul', {}, consumers.map(link))] : null,
    );
  }

  /** What there is to say while nothing is selected. */
  summary() {
    const { timeline, devices, links, step_seconds: total, critical_path: path } = this.step;
    const critical = path.reduce((sum, piece) => sum + piece.end - piece.start, 0);
    const entries = [
      ['step', seconds(total)],
      ['spans', count(timeline.length)],
      ['devices', count(devices.length)],
      ['moved', bytes(links.reduce((sum, l) => sum + l.bytes, 0))],
      ['transfers', count(links.reduce((sum, l) => sum + l.transfers, 0))],
      ['critical', `${count(path.length)} pieces, ${seconds(critical)}`],
    ];
    return [
      h('p', { class: 'name' }, 'The whole step'),
      h(
        'dl',
        {},
        entries.map(([key, value]) => [h('dt', {}, key), h('dd', {}, value)]),
      ),
      empty('Click a span, or press n and p to go along a row, c along the critical path.'),
    ];
  }

  paintCards() {
    const { step } = this;
    fill(
      this.cards,
      this.attributionCard(),
      this.criticalCard(),
      this.waitsCard(),
      this.linksCard(),
      step.clocks?.length ? this.clocksCard() : null,
      step.what_if?.length ? this.whatIfCard() : null,
      step.placement?.length ? this.placementCard() : null,
      this.devicesCard(),
    );
  }

  attributionCard() {
    const { attribution, step_seconds: total } = this.step;
    const parts = [...(attribution?.parts ?? [])].sort((a, b) => b.seconds - a.seconds);
    const kinds = new Map();
    for (const part of parts) kinds.set(part.kind, (kinds.get(part.kind) ?? 0) + part.seconds);
    const of =
      Math.max(total, parts.reduce((sum, part) => sum + part.seconds, 0) + (attribution?.unattributed ?? 0)) || 1;
    const where = (part) => (part.from ? `${short(part.from)} → ${short(part.device)}` : short(part.device));
    const byKind = [...kinds.keys()].flatMap((kind) => parts.filter((part) => part.kind === kind));
    const bar = h(
      'div',
      {
        class: 'attribution',
        role: 'img',
        'aria-label': [...kinds].map(([k, s]) => `${k} ${percent(s / of)}`).join(', '),
      },
      byKind.map((part) => {
        const piece = h('i', {
          onpointermove: (event) =>
            showTooltip(event.clientX, event.clientY, [
              `${part.kind}: ${where(part)}`,
              `${seconds(part.seconds)}, ${percent(part.seconds / of)}`,
            ]),
          onpointerleave: hideTooltip,
        });
        piece.style.width = `${(100 * part.seconds) / of}%`;
        piece.style.background = colors()[PIECE_COLOR[part.kind] ?? 'wait'];
        return piece;
      }),
    );
    const legend = h(
      'div',
      { class: 'legend' },
      [...kinds].map(([kind, s]) =>
        h('span', {}, swatch(colors()[PIECE_COLOR[kind] ?? 'wait']), `${kind} ${percent(s / of)}`),
      ),
      attribution?.unattributed > 0 ? h('span', {}, `not charged ${percent(attribution.unattributed / of)}`) : null,
    );
    const rows = parts
      .slice(0, PARTS_MAX)
      .map((part) => [
        h('span', {}, swatch(colors()[PIECE_COLOR[part.kind] ?? 'wait']), part.kind),
        where(part),
        seconds(part.seconds),
        percent(part.seconds / of),
      ]);
    const share = attribution?.charged_share;
    return card(
      'Where the time goes',
      { class: 'span-6', extra: h('small', {}, share === undefined ? '' : `${percent(share)} of the step is charged`) },
      bar,
      legend,
      h(
        'div',
        { class: 'scroll' },
        parts.length
          ? table(
              [
                { title: 'Kind' },
                { title: 'Where' },
                { title: 'Time', number: true },
                { title: 'Share', number: true },
              ],
              rows,
            )
          : empty('Nothing was charged.'),
      ),
    );
  }

  criticalCard() {
    const path = this.step.critical_path;
    const rows = path.slice(0, ROWS_MAX).map((piece, i) => {
      const name = piece.span !== null && piece.span !== undefined ? this.step.timeline[piece.span]?.name : null;
      const where =
        piece.from !== null && piece.from !== undefined && piece.from !== piece.device
          ? `${this.device(piece.from)} → ${this.device(piece.device)}`
          : this.device(piece.device);
      return {
        attrs: { class: 'clickable', onclick: () => this.toPiece(i) },
        cells: [
          h('span', {}, swatch(colors()[PIECE_COLOR[piece.kind] ?? 'wait']), piece.kind),
          h('button', { class: 'link', title: name ?? where }, name ?? '–'),
          where,
          seconds(piece.end - piece.start),
        ],
      };
    });
    const note =
      path.length > ROWS_MAX ? `the first ${ROWS_MAX} of ${count(path.length)} pieces` : `${count(path.length)} pieces`;
    return card(
      'Critical path',
      { class: 'span-6', extra: h('small', {}, note) },
      h(
        'div',
        { class: 'scroll tall' },
        rows.length
          ? table(
              [
                { title: 'Kind' },
                { title: 'Span', class: 'ellipsis' },
                { title: 'Where' },
                { title: 'Time', number: true },
              ],
              rows,
            )
          : empty('There is none.'),
      ),
    );
  }

  waitsCard() {
    const waits = [...(this.step.attribution?.waits ?? [])].sort((a, b) => b.seconds - a.seconds);
    return card(
      'Who waits for whom',
      { class: 'span-4' },
      h(
        'div',
        { class: 'scroll' },
        waits.length
          ? table(
              [
                { title: 'Device' },
                { title: 'waits for' },
                { title: 'Time', number: true },
                { title: 'Share', number: true },
              ],
              waits
                .slice(0, ROWS_MAX)
                .map((w) => [
                  short(w.device),
                  short(w.for),
                  seconds(w.seconds),
                  percent(w.seconds / this.canvas.total),
                ]),
            )
          : empty('No device waited for another.'),
      ),
    );
  }

  linksCard() {
    const links = [...this.step.links].sort((a, b) => b.seconds - a.seconds || b.bytes - a.bytes);
    return card(
      'Links',
      { class: 'span-4' },
      h(
        'div',
        { class: 'scroll' },
        links.length
          ? table(
              [
                { title: 'From' },
                { title: 'To' },
                { title: 'Bytes', number: true },
                { title: 'n', number: true },
                { title: 'Time', number: true },
              ],
              links
                .slice(0, ROWS_MAX)
                .map((l) => [short(l.from), short(l.to), bytes(l.bytes), count(l.transfers), seconds(l.seconds)]),
            )
          : empty('Nothing crossed a link.'),
      ),
    );
  }

  clocksCard() {
    return card(
      'Clocks',
      { class: 'span-4' },
      h(
        'div',
        { class: 'scroll' },
        table(
          [{ title: 'Task' }, { title: 'Offset', number: true }, { title: 'Error at most', number: true }],
          this.step.clocks.map((c) => [short(c.task), seconds(c.offset_seconds), `± ${seconds(c.error_seconds)}`]),
        ),
      ),
    );
  }

  whatIfCard() {
    const now = this.step.step_seconds;
    const changes = [...this.step.what_if].sort((a, b) => a.step_seconds - b.step_seconds);
    return card(
      'What if',
      { class: 'span-4' },
      h(
        'div',
        { class: 'scroll' },
        table(
          [{ title: 'Change' }, { title: 'Step', number: true }, { title: 'Saves', number: true }],
          changes
            .slice(0, ROWS_MAX)
            .map((c) => [
              c.change.replace(/\/job:\S+/g, short),
              seconds(c.step_seconds),
              now > 0 ? percent(1 - c.step_seconds / now) : '–',
            ]),
        ),
      ),
    );
  }

  placementCard() {
    const { placement } = this.step;
    const elsewhere = (p) => (p.elsewhere ?? []).map((e) => `${short(e.device)} ${seconds(e.finish)}`).join(', ');
    return card(
      'Placement',
      { class: 'span-6', extra: h('small', {}, `${count(placement.length)} nodes`) },
      h(
        'div',
        { class: 'scroll' },
        table(
          [
            { title: 'Node', class: 'ellipsis' },
            { title: 'Op' },
            { title: 'Device' },
            { title: 'Reason' },
            { title: 'Ends', number: true },
            { title: 'Elsewhere', class: 'ellipsis' },
          ],
          placement
            .slice(0, ROWS_MAX)
            .map((p) => [
              h('span', { title: p.node }, p.node),
              p.op,
              short(p.device),
              p.reason,
              seconds(p.finish),
              h('span', { title: elsewhere(p) }, elsewhere(p)),
            ]),
        ),
      ),
    );
  }

  devicesCard() {
    const { devices } = this.step;
    return card(
      'Devices',
      { class: 'span-4' },
      h(
        'div',
        { class: 'scroll' },
        table(
          [
            { title: 'Device' },
            { title: 'Type' },
            { title: 'Busy', number: true },
            { title: 'Share', number: true },
            { title: 'Peak memory', number: true },
          ],
          devices
            .slice(0, ROWS_MAX)
            .map((d) => [
              short(d.name),
              d.type,
              seconds(d.busy_seconds),
              percent(d.busy_seconds / this.canvas.total),
              d.peak_memory_bytes
                ? `${bytes(d.peak_memory_bytes)}${d.memory_bytes ? ` of ${bytes(d.memory_bytes)}` : ''}`
                : '–',
            ]),
        ),
      ),
    );
  }
}

function swatch(color) {
  const element = h('span', { class: 'swatch' });
  element.style.background = color;
  return element;
}
