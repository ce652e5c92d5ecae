// The training's tab: curves that grow while a job runs, histograms, images and texts of event files.

import { api, choice, clock, colors, digits, empty, fill, h, Poller, query, seconds } from './ui.js';
import { HistogramChart, LineChart } from './chart.js';

const POLL_MS = 2000;
const STEADY_EVERY = 4;
const REQUESTS_AT_ONCE = 4;

export class TrainingView {
  constructor(root) {
    this.root = root;
    root.className = 'view fixed training';
    this.runs = [];
    this.hidden = new Set();
    this.cards = new Map();
    this.curves = new Map();
    this.smoothing = 0.6;
    this.axis = 'step';
    this.isLog = false;
    this.histogramMode = 'map';
    this.rounds = 0;
    this.poller = new Poller((signal) => this.poll(signal), POLL_MS);
    this.build();
    document.addEventListener('themechange', () => this.runs.length && this.paintAll());
  }

  build() {
    this.filter = h('input', {
      type: 'search',
      placeholder: 'Filter tags  ( / )',
      'aria-label': 'Filter tags',
      oninput: () => this.arrange(),
    });
    const output = h('output', {}, this.smoothing.toFixed(2));
    const slider = h('input', {
      type: 'range',
      min: '0',
      max: '0.99',
      step: '0.01',
      value: String(this.smoothing),
      'aria-label': 'Smoothing',
      oninput: (event) => {
        this.smoothing = Number(event.target.value);
        output.textContent = this.smoothing.toFixed(2);
        this.paintCurves();
      },
    });
    this.runList = h('div', { role: 'group', 'aria-label': 'Runs' });
    this.sections = h('div');
    fill(
      this.root,
      h(
        'aside',
        { class: 'card' },
        this.filter,
        h('label', { class: 'field' }, h('span', {}, 'Smoothing', output), slider),
        h(
          'div',
          { class: 'field' },
          h('span', {}, 'Axis'),
          choice(
            'Horizontal axis',
            [
              ['step', 'step'],
              ['relative', 'time'],
              ['wall', 'clock'],
            ],
            this.axis,
            (axis) => {
              this.axis = axis;
              this.paintCurves();
            },
          ),
        ),
        h(
          'label',
          { class: 'field' },
          h('input', {
            type: 'checkbox',
            onchange: (event) => {
              this.isLog = event.target.checked;
              this.paintCurves();
            },
          }),
          'logarithmic values',
        ),
        h(
          'div',
          { class: 'field' },
          h('span', {}, 'Histograms'),
          choice(
            'Histograms as',
            [
              ['map', 'heat map'],
              ['ridges', 'ridges'],
            ],
            this.histogramMode,
            (mode) => {
              this.histogramMode = mode;
              this.paintAll();
            },
          ),
        ),
        h('div', { class: 'field' }, h('span', {}, 'Runs')),
        this.runList,
      ),
      this.sections,
    );
  }

  show() {
    this.poller.start();
  }

  hide() {
    this.poller.stop();
  }

  search() {
    this.filter.focus();
    this.filter.select();
  }

  key(event) {
    if (event.key !== 'Escape' || !this.filter.value) return false;
    this.filter.value = '';
    this.arrange();
    return true;
  }

  async poll(signal) {
    const { runs } = await api('runs', { signal });
    const key = JSON.stringify(runs);
    if (key !== this.known) {
      this.known = key;
      this.runs = runs;
      this.paintRuns();
      this.arrange();
    }
    await this.readCurves(signal);
    if (this.rounds % STEADY_EVERY === 0) await this.readSteady(signal);
    this.rounds += 1;
  }

  color(run) {
    return colors().series[this.runs.findIndex((r) => r.run === run) % 12];
  }

  paintRuns() {
    fill(
      this.runList,
      this.runs.length
        ? this.runs.map(({ run }) => {
            const swatch = h('span', { class: 'swatch' });
            swatch.style.background = this.color(run);
            return h(
              'label',
              { title: run },
              h('input', {
                type: 'checkbox',
                checked: !this.hidden.has(run),
                onchange: (event) => {
                  if (event.target.checked) this.hidden.delete(run);
                  else this.hidden.add(run);
                  this.arrange();
                },
              }),
              swatch,
              run || '.',
            );
          })
        : empty('No event files yet.'),
    );
  }

  /** One card a tag for scalars, one a run and tag for the rest; cards that exist stay. */
  arrange() {
    const words = this.filter.value.trim().toLowerCase();
    const sections = { scalar: [], histogram: [], image: [], text: [] };
    for (const { run, tags } of this.runs) {
      if (this.hidden.has(run)) continue;
      for (const { tag, kind } of tags) {
        if (!sections[kind] || (words && !tag.toLowerCase().includes(words))) continue;
        const id = kind === 'scalar' ? `scalar ${tag}` : `${kind} ${run} ${tag}`;
        if (!this.cards.has(id)) this.cards.set(id, this.makeCard(kind, run, tag));
        const made = this.cards.get(id);
        if (!sections[kind].includes(made)) sections[kind].push(made);
      }
    }
    const titles = { scalar: 'Curves', histogram: 'Histograms', image: 'Images', text: 'Texts' };
    const shown = Object.entries(sections).filter(([, cards]) => cards.length);
    fill(
      this.sections,
      shown.length
        ? shown.map(([kind, cards]) => [
            h('h2', { class: 'section' }, titles[kind]),
            h(
              'div',
              { class: 'charts' },
              cards.sort((a, b) => (a.tag < b.tag ? -1 : 1)).map((c) => c.box),
            ),
          ])
        : empty('Nothing to show.'),
    );
    this.paintAll();
  }

  makeCard(kind, run, tag) {
    const made = { kind, run, tag };
    made.note = h('small');
    const title = h(
      'h2',
      {},
      h('span', { title: tag }, kind === 'scalar' ? tag : `${tag} `, kind === 'scalar' ? null : h('small', {}, run)),
      made.note,
    );
    if (kind === 'scalar' || kind === 'histogram') {
      const canvas = h('canvas', {
        role: 'img',
        'aria-label': `${kind === 'scalar' ? 'Curve' : 'Histogram'} of ${tag}`,
      });
      made.chart = kind === 'scalar' ? new LineChart(canvas) : new HistogramChart(canvas);
      made.content = h('div', { class: 'chart' }, canvas);
    } else made.content = h('div', { class: kind === 'image' ? '' : 'texts scroll' });
    made.box = h(
      'section',
      { class: `card${kind === 'text' ? ' wide' : ''}`, 'aria-label': tag, 'data-tag': tag, 'data-kind': kind },
      title,
      made.content,
    );
    return made;
  }

  visibleRuns(tag, kind) {
    return this.runs
      .filter((r) => !this.hidden.has(r.run) && r.tags.some((t) => t.tag === tag && t.kind === kind))
      .map((r) => r.run);
  }

  async readCurves(signal) {
    const wanted = [];
    for (const made of this.cards.values()) {
      if (made.kind !== 'scalar' || !made.box.isConnected) continue;
      for (const run of this.visibleRuns(made.tag, 'scalar')) wanted.push({ made, run });
    }
    const changed = new Set();
    const worker = async () => {
      for (let next = wanted.shift(); next; next = wanted.shift()) {
        if (await this.readCurve(next.run, next.made.tag, signal)) changed.add(next.made);
      }
    };
    await Promise.all(Array.from({ length: REQUESTS_AT_ONCE }, worker));
    for (const made of changed) this.paintCurve(made);
  }

  /** Reads what a curve has grown by; returns whether that is anything. */
  async readCurve(run, tag, signal) {
    const key = `${run}\n${tag}`;
    const curve = this.curves.get(key) ?? { step: [], wall: [], value: [], next: 0 };
    const { points, next } = await api(`scalars?${query({ run, tag, after: curve.next })}`, { signal });
    if (next < curve.next) {
      // The files were written anew: the next poll reads them from their beginning.
      this.curves.delete(key);
      return true;
    }
    curve.next = next ?? curve.next + points.length;
    for (const [step, wall, value] of points) {
      curve.step.push(step);
      curve.wall.push(wall);
      curve.value.push(value === null ? NaN : Number(value));
    }
    this.curves.set(key, curve);
    return points.length > 0;
  }

  async readSteady(signal) {
    for (const made of this.cards.values()) {
      if (made.kind === 'scalar' || !made.box.isConnected) continue;
      const path = { histogram: 'histograms', image: 'images', text: 'texts' }[made.kind];
      made.data = await api(`${path}?${query({ run: made.run, tag: made.tag })}`, { signal });
      this.paintSteady(made);
    }
  }

  paintAll() {
    this.paintCurves();
    let isMissing = false;
    for (const made of this.cards.values()) {
      if (made.data) this.paintSteady(made);
      else if (made.kind !== 'scalar' && made.box.isConnected) isMissing = true;
    }
    // A card that has just come to be shown is read with the next poll.
    if (isMissing) this.rounds = 0;
  }

  paintCurves() {
    for (const made of this.cards.values()) if (made.kind === 'scalar') this.paintCurve(made);
  }

  paintCurve(made) {
    let points = 0;
    const series = [];
    for (const run of this.visibleRuns(made.tag, 'scalar')) {
      const curve = this.curves.get(`${run}\n${made.tag}`);
      if (!curve?.step.length) continue;
      points += curve.step.length;
      const x =
        this.axis === 'step'
          ? curve.step
          : this.axis === 'wall'
            ? curve.wall
            : curve.wall.map((t) => t - curve.wall[0]);
      const smooth = this.smoothing > 0 ? smoothed(curve.value, this.smoothing) : curve.value;
      series.push({
        name: run || '.',
        color: this.color(run),
        x,
        y: smooth,
        faint: this.smoothing > 0 ? curve.value : null,
      });
    }
    const texts = { step: digits, relative: seconds, wall: (t) => clock(t * 1000) };
    made.chart.set(series, {
      log: this.isLog,
      xText: this.axis === 'step' ? (v) => Math.round(v).toLocaleString('en-US') : texts[this.axis],
      xName: this.axis === 'step' ? 'step' : '',
    });
    const last = this.curves.get(`${made.run}\n${made.tag}`);
    made.box.dataset.points = points;
    made.note.textContent = last?.value.length
      ? `${digits(last.value.at(-1))} at step ${last.step.at(-1).toLocaleString('en-US')}`
      : '';
  }

  paintSteady(made) {
    if (made.kind === 'histogram') {
      made.chart.set(made.data.steps, this.histogramMode);
      made.note.textContent = `${made.data.steps.length} steps`;
    } else if (made.kind === 'image') this.paintImages(made);
    else {
      const texts = [...made.data.texts].reverse().slice(0, 30);
      const key = JSON.stringify(texts.map((t) => t.step));
      if (made.shown === key) return;
      made.shown = key;
      fill(
        made.content,
        texts.map((t) => [
          h('small', { class: 'muted' }, `step ${t.step}, ${clock(t.wall_time * 1000)}`),
          h('pre', {}, t.text),
        ]),
      );
    }
  }

  /** The images of the chosen step; the newest until another is chosen. */
  paintImages(made) {
    const steps = [...new Set(made.data.images.map((i) => i.step))].sort((a, b) => a - b);
    const key = JSON.stringify(steps);
    if (made.shown === key) return;
    made.shown = key;
    const gallery = h('div', { class: 'images' });
    const paint = (step) => {
      made.note.textContent = `step ${step}`;
      fill(
        gallery,
        made.data.images
          .filter((i) => i.step === step)
          .map((image) =>
            h(
              'figure',
              {},
              h('img', {
                src: image.url,
                alt: `${made.tag} at step ${step}`,
                width: Math.min(260, Math.max(84, image.width)),
              }),
              h('figcaption', {}, `${image.width} x ${image.height}`),
            ),
          ),
      );
    };
    const slider = h('input', {
      type: 'range',
      min: '0',
      max: String(Math.max(0, steps.length - 1)),
      value: String(steps.length - 1),
      'aria-label': `Step of ${made.tag}`,
      oninput: (event) => paint(steps[Number(event.target.value)]),
    });
    fill(made.content, steps.length > 1 ? slider : null, gallery);
    if (steps.length) paint(steps.at(-1));
  }
}

/** An exponential moving average that starts unbiased. */
function smoothed(values, weight) {
  const out = new Array(values.length);
  let [sum, norm] = [0, 0];
  for (let i = 0; i < values.length; i += 1) {
    if (!Number.isFinite(values[i])) {
      out[i] = values[i];
      continue;
    }
    sum = sum * weight + (1 - weight) * values[i];
    norm = norm * weight + (1 - weight);
    out[i] = sum / norm;
  }
  return out;
}
