// The timeline's tab: which step to show, and tracing one more.

import { api, clock, fill, h, isAbort, Poller, query, seconds } from './ui.js';
import { TimelinePanel } from './timeline_panel.js';

export class TimelineView {
  constructor(root, state) {
    this.root = root;
    this.state = state;
    root.className = 'view';
    this.steps = [];
    this.shown = null;
    this.picker = h('select', { 'aria-label': 'Step', onchange: () => this.choose(this.picker.value) });
    this.traceButton = h('button', { class: 'primary', onclick: () => this.trace() }, 'Trace the next step');
    this.progress = h(
      'span',
      { class: 'progress', hidden: true, role: 'progressbar', 'aria-label': 'Waiting for a step' },
      h('i'),
    );
    this.message = h('span', { class: 'muted', role: 'status' });
    this.duration = h('b');
    this.download = h('a', { class: 'button', hidden: true, download: '' }, 'Perfetto file');
    root.append(
      h(
        'div',
        { class: 'toolbar' },
        h('label', {}, 'Step '),
        this.picker,
        this.duration,
        this.traceButton,
        this.progress,
        this.message,
        h('span', { class: 'grow' }),
        this.download,
      ),
    );
    this.panel = new TimelinePanel(root);
    this.poller = new Poller((signal) => this.readSteps(signal), 3000);
  }

  show() {
    const { has } = this.state();
    this.traceButton.disabled = !has.cluster || Boolean(this.tracing);
    this.traceButton.title = has.cluster
      ? 'Traces the next step that a client of the cluster runs'
      : 'No cluster is watched.';
    this.poller.start();
    this.panel.canvas.draw();
  }

  hide() {
    this.poller.stop();
  }

  key(event) {
    return this.panel.key(event);
  }

  search() {
    this.panel.focusSearch();
  }

  async readSteps(signal) {
    const { steps } = await api('steps', { signal });
    const text = JSON.stringify(steps.map((s) => s.id));
    if (text !== this.known) {
      this.known = text;
      this.steps = steps;
      this.fillPicker();
    }
    if (this.shown === null && steps.length) await this.choose(steps.at(-1).id);
    if (!steps.length && !this.tracing)
      this.message.textContent = 'No step was traced yet: trace the next one that a client runs.';
  }

  fillPicker() {
    fill(
      this.picker,
      [...this.steps]
        .reverse()
        .map((step) =>
          h(
            'option',
            { value: step.id },
            `${step.label || `step ${step.id}, ${clock(step.time_ms)}`}${step.simulated ? ' (simulated)' : ''} – ${seconds(step.seconds)}`,
          ),
        ),
    );
    this.picker.disabled = !this.steps.length;
    if (this.shown !== null) this.picker.value = this.shown;
  }

  async choose(id) {
    this.loading?.abort();
    this.loading = new AbortController();
    try {
      const step = await api(`step?${query({ id })}`, { signal: this.loading.signal });
      this.shown = id;
      this.picker.value = id;
      this.message.textContent = '';
      this.duration.textContent = seconds(step.step_seconds);
      this.download.href = `/api/step.perfetto?${query({ id })}`;
      this.download.hidden = false;
      this.panel.set(step);
    } catch (error) {
      if (!isAbort(error)) this.message.textContent = error.message;
    }
  }

  async trace() {
    this.tracing = true;
    this.traceButton.disabled = true;
    this.progress.hidden = false;
    this.message.textContent = 'Waiting for the next step …';
    try {
      const { id } = await api('trace', { body: {} });
      const { steps } = await api('steps');
      this.steps = steps;
      this.known = null;
      this.fillPicker();
      await this.choose(id);
    } catch (error) {
      this.message.textContent = error.message;
    } finally {
      this.tracing = false;
      this.traceButton.disabled = !this.state().has.cluster;
      this.progress.hidden = true;
    }
  }
}
