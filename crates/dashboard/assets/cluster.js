// The cluster's tab: a poll a second of every task's health, and what changed between two of them.

import {
  api,
  bytes,
  card,
  clock,
  colors,
  count,
  digits,
  empty,
  fill,
  h,
  mix,
  Poller,
  seconds,
  setText,
  short,
  table,
} from './ui.js';
import { sparkline } from './chart.js';

const HISTORY = 90;
const EVENTS_MAX = 200;
/** Polls whose mean is the rate that is written, since single steps make it jump. */
const MEAN_OF = 5;
const MATRIX_MAX = 16;

export class ClusterView {
  constructor(root) {
    this.root = root;
    root.className = 'view';
    this.tasks = new Map();
    this.own = [];
    this.poller = new Poller((signal) => this.poll(signal), 1000);
    this.build();
    document.addEventListener('themechange', () => this.last && this.paint(this.last));
  }

  build() {
    const figure = (label) => {
      const parts = { value: h('b', {}, '–'), sub: h('span', { class: 'sub' }, '\u00a0') };
      parts.box = h('div', { class: 'figure' }, h('span', {}, label), parts.value, parts.sub);
      return parts;
    };
    this.figures = {
      tasks: figure('Tasks'),
      steps: figure('Steps per second'),
      running: figure('Steps running'),
      memory: figure('Resident memory'),
      bytes: figure('Received per second'),
    };
    this.body = h('tbody');
    const heads = [
      'Task',
      'State',
      'Memory',
      'Variables',
      'Steps/s',
      '',
      'Steps',
      'Running',
      'Failed',
      'Sessions',
      'Up',
      'Address',
    ];
    const numbers = new Set([3, 4, 6, 7, 8, 9, 10]);
    const tasks = h(
      'table',
      { class: 'tasks' },
      h(
        'thead',
        {},
        h(
          'tr',
          {},
          heads.map((text, i) => h('th', { class: numbers.has(i) ? 'number' : null }, text)),
        ),
      ),
      this.body,
    );
    this.waits = h('div', { class: 'scroll' });
    this.queues = h('div', { class: 'scroll' });
    this.staleness = h('div', { class: 'scroll' });
    this.links = h('div', { class: 'scroll' });
    this.events = h('ul', { class: 'events scroll', 'aria-live': 'polite', 'aria-label': 'Events' });
    this.error = h('p', { class: 'error', hidden: true, role: 'alert' });
    fill(
      this.root,
      this.error,
      h(
        'div',
        { class: 'figures' },
        Object.values(this.figures).map((f) => f.box),
      ),
      h(
        'div',
        { class: 'cards' },
        card('Tasks', { class: 'span-12' }, h('div', { class: 'tasks-box' }, tasks)),
        card('Who waits for what', { class: 'span-8' }, this.waits),
        card('Events', { class: 'span-4' }, this.events),
        card('Bytes received', { class: 'span-6', extra: h('small', {}, 'row: receiver, column: sender') }, this.links),
        card('Queues', { class: 'span-3' }, this.queues),
        card('Staleness', { class: 'span-3', extra: h('small', {}, 'updates behind') }, this.staleness),
      ),
    );
  }

  show() {
    this.poller.start();
  }

  hide() {
    this.poller.stop();
  }

  async poll(signal) {
    try {
      const now = await api('cluster', { signal });
      this.error.hidden = true;
      this.observe(now);
      this.paint(now);
    } catch (error) {
      if (signal.aborted) return;
      this.error.hidden = false;
      setText(this.error, `The cluster could not be asked: ${error.message}`);
    }
  }

  /** Rates since the last poll, and changes of state that the server's events do not tell. */
  observe(now) {
    const known = new Set();
    const received = (task) => task.links.reduce((sum, l) => sum + l.bytes, 0);
    for (const task of now.tasks) {
      known.add(task.task);
      const before = this.tasks.get(task.task);
      const mine = before ?? { rates: [], state: task.state };
      if (before?.poll && now.time_ms > before.poll.time_ms) {
        const passed = (now.time_ms - before.poll.time_ms) / 1000;
        // A task that was started again counts from zero.
        const rate = (a, b) => (a >= b ? (a - b) / passed : 0);
        mine.rates.push(task.state === 'alive' ? rate(task.steps + task.partition_steps, before.poll.steps) : 0);
        if (mine.rates.length > HISTORY) mine.rates.shift();
        mine.bytesRates = recent(mine.bytesRates, task.state === 'alive' ? rate(received(task), before.poll.bytes) : 0);
        mine.clientRates = recent(
          mine.clientRates,
          task.state === 'alive' ? rate(task.steps, before.poll.clientSteps) : 0,
        );
      }
      mine.poll = {
        time_ms: now.time_ms,
        steps: task.steps + task.partition_steps,
        clientSteps: task.steps,
        bytes: received(task),
      };
      if (mine.state !== task.state) {
        const isTold = now.events.some((e) => e.text.includes(task.task) && e.time_ms >= now.time_ms - 3000);
        if (!isTold) {
          this.own.push({
            time_ms: now.time_ms,
            level: task.state === 'alive' ? 'info' : 'warning',
            text: `${task.task} is ${task.state}, was ${mine.state}`,
          });
        }
        mine.state = task.state;
      }
      this.tasks.set(task.task, mine);
    }
    for (const name of this.tasks.keys()) if (!known.has(name)) this.tasks.delete(name);
    this.own = this.own.slice(-EVENTS_MAX);
    this.last = now;
  }

  paint(now) {
    this.paintFigures(now);
    this.paintTasks(now);
    this.paintWaits(now);
    this.paintQueues(now);
    this.paintStaleness(now);
    this.paintLinks(now);
    this.paintEvents(now);
  }

  paintFigures({ tasks }) {
    const { figures } = this;
    const sum = (of) => tasks.reduce((total, task) => total + (of(task) || 0), 0);
    const states = ['alive', 'silent', 'dead'].map((state) => [state, tasks.filter((t) => t.state === state).length]);
    const set = (figure, value, sub) => {
      setText(figure.value, value);
      setText(figure.sub, sub || '\u00a0');
    };
    set(
      figures.tasks,
      `${states[0][1]} of ${tasks.length} alive`,
      states
        .slice(1)
        .filter(([, n]) => n)
        .map(([state, n]) => `${n} ${state}`)
        .join(', '),
    );
    set(
      figures.steps,
      digits(sum((t) => mean(this.tasks.get(t.task)?.clientRates))),
      `${count(sum((t) => t.steps))} so far`,
    );
    set(
      figures.running,
      count(sum((t) => t.steps_now)),
      sum((t) => t.steps_failed) ? `${count(sum((t) => t.steps_failed))} failed so far` : 'none failed',
    );
    set(figures.memory, bytes(sum((t) => t.resident_bytes)), `${bytes(sum((t) => t.variable_bytes))} of variables`);
    set(
      figures.bytes,
      `${bytes(sum((t) => mean(this.tasks.get(t.task)?.bytesRates)))}/s`,
      `${bytes(sum((t) => t.links.reduce((a, l) => a + l.bytes, 0)))} so far`,
    );
  }

  paintTasks({ tasks }) {
    for (const task of tasks) {
      const mine = this.tasks.get(task.task);
      mine.row ??= this.makeRow(task);
      this.updateRow(mine, task);
    }
    const rows = tasks.map((task) => this.tasks.get(task.task).row.row);
    if (rows.length !== this.body.children.length || rows.some((row, i) => this.body.children[i] !== row))
      this.body.replaceChildren(...rows);
    for (const task of tasks) {
      const { row, rates } = this.tasks.get(task.task);
      sparkline(row.spark, rates, HISTORY, colors()[task.state === 'alive' ? 'accent' : 'muted']);
    }
  }

  makeRow(task) {
    const cells = {};
    for (const name of ['variables', 'rate', 'steps', 'running', 'failed', 'sessions', 'up'])
      cells[name] = h('td', { class: 'number' });
    cells.state = h('span', { class: 'state', role: 'status' });
    cells.detail = h('small', { class: 'muted' });
    cells.meters = h('td', { class: 'memory' });
    cells.spark = h('canvas', { class: 'spark', 'aria-hidden': 'true' });
    cells.address = h('td', { class: 'mono muted address' });
    const devices = h('small', { class: 'muted' });
    setText(devices, task.devices.map((d) => short(d.name).split(' ').pop()).join(', '));
    cells.row = h(
      'tr',
      { 'data-task': task.task },
      h('td', { title: task.task }, h('b', {}, short(task.task)), ' ', devices),
      h('td', {}, cells.state, ' ', cells.detail),
      cells.meters,
      cells.variables,
      cells.rate,
      h('td', {}, cells.spark),
      cells.steps,
      cells.running,
      cells.failed,
      cells.sessions,
      cells.up,
      cells.address,
    );
    return cells;
  }

  updateRow({ row, rates }, task) {
    row.row.className = task.state === 'alive' ? '' : task.state;
    row.state.className = `state ${task.state}`;
    setText(row.state, task.state);
    setText(row.detail, task.state === 'alive' ? '' : (task.detail ?? ''));
    row.row.title = [task.address, task.state === 'alive' ? '' : task.detail].filter(Boolean).join(': ');
    setText(row.variables, task.variables ? `${count(task.variables)} (${bytes(task.variable_bytes)})` : '–');
    setText(row.rate, rates.length && task.state === 'alive' ? digits(mean(rates.slice(-MEAN_OF))) : '–');
    setText(row.steps, count(task.steps + task.partition_steps));
    setText(row.running, count(task.steps_now));
    setText(row.failed, count(task.steps_failed + task.partition_steps_failed));
    setText(row.sessions, count(task.sessions));
    setText(row.up, task.uptime_ms ? seconds(Math.round(task.uptime_ms / 1000)) : '–');
    setText(row.address, `${task.address}${task.process ? ` pid ${task.process}` : ''}`);
    const meters = [
      ['resident', task.resident_bytes, task.memory_limit_bytes],
      ...(task.accelerators ?? []).map((a) => [a.name || a.kind, a.memory_used_bytes, a.memory_limit_bytes]),
    ];
    if (row.meterRows?.length !== meters.length) {
      row.meterRows = meters.map(() => ({ text: h('small'), bar: h('i'), meter: null }));
      for (const m of row.meterRows) m.meter = h('span', { class: 'meter' }, m.bar);
      fill(
        row.meters,
        row.meterRows.map((m) => [m.text, m.meter]),
      );
    }
    meters.forEach(([name, used, limit], i) => {
      const { text, bar, meter } = row.meterRows[i];
      const share = limit > 0 ? Math.min(1, used / limit) : 0;
      setText(text, `${name === 'resident' ? '' : `${name} `}${bytes(used)}${limit > 0 ? ` of ${bytes(limit)}` : ''}`);
      bar.style.width = `${share * 100}%`;
      meter.hidden = !(limit > 0);
      meter.className = `meter${share > 0.92 ? ' full' : share > 0.75 ? ' high' : ''}`;
    });
  }

  paintWaits({ tasks }) {
    const waits = grouped(tasks.flatMap((task) => task.waits.map((w) => ({ task: task.task, ...w })))).sort(
      (a, b) => b.ms - a.ms,
    );
    replaceIfChanged(this.waits, JSON.stringify(waits), () =>
      waits.length
        ? table(
            [
              { title: 'Task' },
              { title: 'waits for' },
              { title: 'What', class: 'ellipsis' },
              { title: 'Op' },
              { title: 'On' },
              { title: 'Since', number: true },
            ],
            waits
              .slice(0, 100)
              .map((w) => [
                short(w.task),
                `${w.kind}${w.of ? ` of ${short(w.of)}` : ''}`,
                h(
                  'span',
                  { title: w.all.join('\n') },
                  w.what + (w.all.length > 1 ? ` and ${w.all.length - 1} more` : ''),
                ),
                w.op ?? '',
                w.on ?? '',
                seconds(w.ms / 1000),
              ]),
          )
        : empty('Nothing waits.'),
    );
  }

  paintQueues({ tasks }) {
    const queues = tasks.flatMap((task) => task.queues.map((q) => ({ task: task.task, ...q })));
    replaceIfChanged(this.queues, JSON.stringify(queues), () =>
      queues.length
        ? table(
            [{ title: 'Queue', class: 'ellipsis' }, { title: 'Task' }, { title: 'Size', number: true }],
            queues.map((q) => [
              h('span', { title: q.name }, q.name),
              short(q.task),
              q.capacity > 0 ? `${count(q.size)} of ${count(q.capacity)}` : count(q.size),
            ]),
          )
        : empty('No queues.'),
    );
  }

  paintStaleness({ staleness }) {
    const values = Object.entries(staleness ?? {}).flatMap(([job, list]) =>
      [list].flat().map((value, i) => [`${job}/${i}`, value]),
    );
    replaceIfChanged(this.staleness, JSON.stringify(values), () => {
      if (!values.length) return empty('No worker reports how stale its updates are.');
      const most = Math.max(1, ...values.map(([, v]) => v ?? 0));
      return table(
        [{ title: 'Task' }, { title: '' }, { title: 'Behind', number: true }],
        values.map(([name, value]) => {
          const bar = h('i');
          bar.style.width = `${(100 * (value ?? 0)) / most}%`;
          return [name, h('span', { class: 'meter' }, bar), value === null ? '–' : digits(value)];
        }),
      );
    });
  }

  paintLinks({ tasks }) {
    const names = tasks.map((t) => t.task);
    const links = tasks.flatMap((t) =>
      t.links.filter((l) => l.bytes > 0).map((l) => ({ by: t.task, from: l.to, bytes: l.bytes })),
    );
    replaceIfChanged(this.links, JSON.stringify([names, links, document.documentElement.dataset.theme]), () => {
      if (!links.length) return empty('Nothing was sent between tasks yet.');
      const involved = names.filter((n) => links.some((l) => l.by === n || l.from === n));
      if (involved.length > MATRIX_MAX) {
        const most = [...links].sort((a, b) => b.bytes - a.bytes).slice(0, 60);
        return table(
          [{ title: 'Receiver' }, { title: 'Sender' }, { title: 'Bytes', number: true }],
          most.map((l) => [short(l.by), short(l.from), bytes(l.bytes)]),
        );
      }
      const largest = Math.max(...links.map((l) => l.bytes));
      const { surface, accent } = colors();
      return h(
        'table',
        { class: 'matrix' },
        h(
          'thead',
          {},
          h(
            'tr',
            {},
            h('th', {}),
            involved.map((n) => h('th', { scope: 'col' }, short(n))),
          ),
        ),
        h(
          'tbody',
          {},
          involved.map((by) =>
            h(
              'tr',
              {},
              h('th', { scope: 'row' }, short(by)),
              involved.map((from) => {
                const sum = links
                  .filter((l) => l.by === by && l.from === from)
                  .reduce((total, l) => total + l.bytes, 0);
                const cell = h(
                  'td',
                  { title: `${short(by)} received ${bytes(sum)} from ${short(from)}` },
                  sum ? bytes(sum) : '',
                );
                if (sum) cell.style.background = mix(surface, accent, 0.08 + 0.42 * Math.sqrt(sum / largest));
                return cell;
              }),
            ),
          ),
        ),
      );
    });
  }

  paintEvents({ events }) {
    const all = [...events, ...this.own].sort((a, b) => b.time_ms - a.time_ms).slice(0, EVENTS_MAX);
    replaceIfChanged(this.events, JSON.stringify(all), () =>
      all.length
        ? all.map((e) =>
            h(
              'li',
              { class: e.level },
              h('time', {}, clock(e.time_ms)),
              h(
                'span',
                {},
                e.text.replace(/\/job:[^\s,;:]+(:\d+)?[^\s,;]*/g, (name) => short(name)),
              ),
            ),
          )
        : h('li', { class: 'none' }, 'Nothing happened yet.'),
    );
  }
}

function recent(list = [], value) {
  return [...list, value].slice(-MEAN_OF);
}

function mean(list) {
  return list?.length ? list.reduce((a, b) => a + b, 0) / list.length : 0;
}

/** Waits of one task for the same kind of thing of the same task as one, with the longest time. */
function grouped(waits) {
  const groups = new Map();
  for (const wait of waits) {
    const key =
      wait.kind === 'tensor'
        ? [wait.task, wait.kind, wait.of].join('\n')
        : [wait.task, wait.kind, wait.of, wait.what].join('\n');
    const what = tensorOf(wait.what ?? '');
    const group = groups.get(key);
    if (!group) groups.set(key, { ...wait, what, all: [what] });
    else {
      group.all.push(what);
      if (wait.ms > group.ms) Object.assign(group, { ms: wait.ms, what });
    }
  }
  return [...groups.values()];
}

/** The tensor that a key of the rendezvous names: source; incarnation; destination; tensor; frame and iteration. */
function tensorOf(key) {
  const parts = key.split(';');
  return parts.length === 5 ? parts[3].replace(/^edge_\d+_/, '') : key;
}

/** Rebuilds the children of `element` only when what they show changed. */
function replaceIfChanged(element, key, make) {
  if (element.shownKey === key) return;
  element.shownKey = key;
  const top = element.scrollTop;
  fill(element, make());
  element.scrollTop = top;
}
