// The simulation's tab: sliders for a cluster that need not exist; the timeline and numbers follow.

import { api, bytes, card, colors, count, debounced, digits, empty, fill, h, isAbort, seconds, short } from './ui.js';
import { LineChart } from './chart.js';
import { TimelinePanel } from './timeline_panel.js';

const WAIT_MS = 120;

export class SimulationView {
  constructor(root) {
    this.root = root;
    root.className = 'view fixed simulation';
    this.aside = h('aside', { class: 'card', 'aria-label': 'What to simulate' });
    this.error = h('p', { class: 'error', hidden: true, role: 'alert' });
    this.figures = h('div', { class: 'figures' });
    this.content = h('div', {}, this.error, this.figures);
    fill(root, this.aside, this.content);
    this.ask = debounced(() => this.simulate(), WAIT_MS);
    this.runs = 0;
  }

  show() {
    if (!this.description && !this.loading) this.load();
    this.panel?.canvas.draw();
  }

  hide() {}

  key(event) {
    return this.panel?.key(event) ?? false;
  }

  search() {
    this.panel?.focusSearch();
  }

  async load() {
    this.loading = true;
    try {
      this.description = await api('simulation');
      this.reset();
      this.panel = new TimelinePanel(this.content);
      this.panel.cards.before(this.trainCards());
      await this.simulate();
    } catch (error) {
      this.fail(error);
    } finally {
      this.loading = false;
    }
  }

  /** Everything as it was described. */
  reset() {
    this.wish = { device_speed: {}, link_speed: {} };
    this.buildControls();
  }

  buildControls() {
    const { devices, links, algorithms, train } = this.description;
    const change = (set) => (value) => {
      set(value);
      this.ask();
    };
    const factor = (name, title, of, detail) =>
      speedSlider(
        title,
        detail,
        change((value) => {
          if (value === 1) delete of[name];
          else of[name] = value;
        }),
      );
    const algorithm = select(
      'Placement',
      algorithms,
      algorithms[0],
      change((value) => {
        this.wish.algorithm = value;
      }),
    );
    const named = links.filter((l) => l.from !== '*' || l.to !== '*');
    fill(
      this.aside,
      h(
        'div',
        { class: 'toolbar' },
        h('b', { class: 'grow' }, 'What if …'),
        h(
          'button',
          {
            onclick: () => {
              this.reset();
              this.ask();
            },
          },
          'Reset',
        ),
      ),
      algorithm,
      train ? this.trainControls(train, change) : null,
      h('h3', {}, 'Speed of links'),
      factor('*', 'all links', this.wish.link_speed, ''),
      named
        .slice(0, 64)
        .map((l) =>
          factor(
            `${l.from}->${l.to}`,
            `${short(l.from)} → ${short(l.to)}`,
            this.wish.link_speed,
            `${bytes(l.bandwidth)}/s`,
          ),
        ),
      h('h3', {}, 'Speed of devices'),
      devices
        .slice(0, 128)
        .map((d) =>
          factor(d.name, short(d.name), this.wish.device_speed, d.flops ? `${digits(d.flops / 1e9)} GFLOP/s` : d.type),
        ),
    );
  }

  trainControls(train, change) {
    const wish = () => (this.wish.train ??= {});
    const whole = (title, key, least, most) =>
      slider(
        title,
        least,
        most,
        1,
        train[key] ?? 0,
        count,
        change((value) => {
          wish()[key] = value;
        }),
      );
    const failures = h('textarea', {
      rows: '2',
      placeholder: 'ps/0@3s\nworker/1@5s',
      spellcheck: 'false',
      'aria-label': 'Failures, one a line',
      oninput: () => {
        wish().failures = failures.value
          .split(/[\n,]+/)
          .map((line) => line.trim())
          .filter(Boolean);
        this.ask();
      },
    });
    return [
      h('h3', {}, 'Training'),
      select(
        'Mode',
        ['sync', 'async', 'backup', 'stale'],
        train.mode,
        change((value) => {
          wish().mode = value;
        }),
      ),
      whole('workers', 'workers', 1, train.workers_max ?? 64),
      whole('parameter servers', 'ps', 1, train.ps_max ?? 16),
      whole('spare workers', 'spare', 0, 8),
      slider(
        'stragglers',
        0,
        0.9,
        0.05,
        train.straggler ?? 0,
        (v) => `${Math.round(v * 100)}%`,
        change((value) => {
          wish().straggler = value;
        }),
      ),
      h('div', { class: 'slider' }, h('span', {}, 'failures')),
      failures,
    ];
  }

  trainCards() {
    const canvas = h('canvas', { role: 'img', 'aria-label': 'Updates over time' });
    this.updates = new LineChart(canvas, { fromZero: true, xText: seconds, xName: 'after' });
    this.trainEvents = h('ul', { class: 'events scroll' });
    this.trainBox = h(
      'div',
      { class: 'cards', hidden: !this.description.train },
      card('Updates of the variables', { class: 'span-8' }, h('div', { class: 'chart' }, canvas)),
      card('What happens', { class: 'span-4' }, this.trainEvents),
    );
    return this.trainBox;
  }

  /** Asks for the wished simulation; an answer that a newer wish overtook is dropped. */
  async simulate() {
    this.request?.abort();
    this.request = new AbortController();
    const { signal } = this.request;
    this.figures.classList.add('stale-numbers');
    const body = { ...this.wish };
    for (const key of ['device_speed', 'link_speed']) if (!Object.keys(body[key]).length) delete body[key];
    try {
      const answer = await api('simulation', { body, signal });
      if (signal.aborted) return;
      this.error.hidden = true;
      this.figures.classList.remove('stale-numbers');
      this.paint(answer);
    } catch (error) {
      if (!isAbort(error)) this.fail(error);
    }
  }

  fail(error) {
    this.error.hidden = false;
    this.error.textContent = error.message;
  }

  paint({ timeline, train }) {
    this.first ??= { step: timeline.step_seconds, rate: train?.steps_per_second };
    const change = (now, before) =>
      before > 0 && Math.abs(now / before - 1) > 5e-4
        ? `${now > before ? '+' : '−'}${Math.abs((now / before - 1) * 100).toFixed(1)}% against the description`
        : 'as described';
    const busy = timeline.devices.reduce((sum, d) => sum + d.busy_seconds, 0);
    const moved = timeline.links.reduce((sum, l) => sum + l.bytes, 0);
    const figure = (label, value, sub) =>
      h('div', { class: 'figure' }, h('span', {}, label), h('b', {}, value), h('span', { class: 'sub' }, sub));
    const share =
      timeline.step_seconds > 0 && timeline.devices.length ? busy / timeline.step_seconds / timeline.devices.length : 0;
    const figures = [
      figure('Step', seconds(timeline.step_seconds), change(timeline.step_seconds, this.first.step)),
      figure('Devices busy', `${(share * 100).toFixed(0)}%`, `${timeline.devices.length} devices`),
      figure(
        'Moved in a step',
        bytes(moved),
        `${count(timeline.links.reduce((n, l) => n + l.transfers, 0))} transfers`,
      ),
    ];
    if (train) {
      figures.push(
        figure('Steps per second', digits(train.steps_per_second), change(train.steps_per_second, this.first.rate)),
        figure(
          'Median step',
          seconds(train.median_seconds),
          `${seconds(train.p10_seconds)} to ${seconds(train.p90_seconds)}`,
        ),
        figure('Lost updates', count(train.lost_updates), ''),
      );
    }
    fill(this.figures, figures);
    this.panel.set(timeline);
    this.trainBox.hidden = !train;
    if (train) this.paintTrain(train);
    this.runs += 1;
    this.root.dataset.runs = this.runs;
    this.root.dataset.step = timeline.step_seconds;
  }

  paintTrain(train) {
    this.updates.set([
      {
        name: 'global step',
        color: colors().accent,
        x: train.updates.map((u) => u[0]),
        y: train.updates.map((u) => u[1]),
      },
    ]);
    fill(
      this.trainEvents,
      train.events.length
        ? train.events.map((e) => h('li', {}, h('time', {}, seconds(e.at)), h('span', {}, e.text)))
        : empty('No failures.'),
    );
  }
}

/** A labelled slider. */
function slider(title, least, most, step, value, text, change, detail) {
  const output = h('output', {}, text(value));
  const input = h('input', {
    type: 'range',
    min: String(least),
    max: String(most),
    step: String(step),
    value: String(value),
    'aria-label': title,
    oninput: () => {
      output.textContent = text(Number(input.value));
      change(Number(input.value));
    },
  });
  return h('label', { class: 'slider' }, h('span', {}, title, detail ? `  ${detail}` : null), input, output);
}

/** A slider from a quarter to eight times, even in the logarithm. */
function speedSlider(title, detail, change) {
  return slider(
    title,
    -2,
    3,
    0.25,
    0,
    (v) => `${digits(2 ** v)}x`,
    (v) => change(Number((2 ** v).toPrecision(4))),
    detail,
  );
}

function select(title, values, value, change) {
  const list = h(
    'select',
    { 'aria-label': title, onchange: () => change(list.value) },
    values.map((v) => h('option', { value: v }, v)),
  );
  list.value = value;
  return h('label', { class: 'field' }, h('span', {}, title), list);
}
