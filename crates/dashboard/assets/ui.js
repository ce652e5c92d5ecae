// What every view needs: elements, numbers as text, requests, polling, tooltips, colours of the theme.

/** Makes an element. Keys of `attrs`: `on…` listeners, `class`, anything else an attribute. */
export function h(tag, attrs, ...children) {
  const element = document.createElement(tag);
  for (const [key, value] of Object.entries(attrs ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith('on')) element.addEventListener(key.slice(2), value);
    else if (key === 'class') element.className = value;
    else element.setAttribute(key, value === true ? '' : value);
  }
  append(element, children);
  return element;
}

function append(element, children) {
  for (const child of children) {
    if (Array.isArray(child)) append(element, child);
    else if (child !== undefined && child !== null && child !== false) element.append(child);
  }
}

/** Replaces the children of `element`. */
export function fill(element, ...children) {
  element.replaceChildren();
  append(element, children);
  return element;
}

/** Changes the text only if it differs, so that a poll that brings nothing new touches nothing. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** A duration for people. */
export function seconds(s) {
  if (s === null || s === undefined || !Number.isFinite(s)) return '–';
  const a = Math.abs(s);
  if (a === 0) return '0 s';
  if (a < 1e-6) return `${digits(s * 1e9)} ns`;
  if (a < 1e-3) return `${digits(s * 1e6)} µs`;
  if (a < 1) return `${digits(s * 1e3)} ms`;
  if (a < 120) return `${digits(s)} s`;
  if (a < 7200) return `${Math.floor(s / 60)} min ${Math.round(s % 60)} s`;
  if (a < 172800) return `${Math.floor(s / 3600)} h ${Math.round((s % 3600) / 60)} min`;
  return `${Math.floor(s / 86400)} d ${Math.round((s % 86400) / 3600)} h`;
}

/** A number of bytes for people, in powers of 1024. */
export function bytes(n) {
  if (n === null || n === undefined || !Number.isFinite(n)) return '–';
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];
  let unit = 0;
  while (Math.abs(n) >= 1024 && unit < units.length - 1) [n, unit] = [n / 1024, unit + 1];
  return `${unit ? digits(n) : Math.round(n)} ${units[unit]}`;
}

/** Three significant digits, without an exponent where one can do without. */
export function digits(x) {
  if (!Number.isFinite(x)) return String(x);
  const a = Math.abs(x);
  if (a === 0) return '0';
  if (a >= 1e6 || a < 1e-4) return Number(x.toPrecision(3)).toExponential().replace('e+', 'e');
  if (a >= 100) return Math.round(x).toLocaleString('en-US');
  return String(Number(x.toPrecision(3)));
}

/** A whole number with separators. */
export function count(n) {
  return n === null || n === undefined ? '–' : Number(n).toLocaleString('en-US');
}

/** A share as percent. */
export function percent(share) {
  return `${(share * 100).toFixed(share < 0.0995 ? 1 : 0)}%`;
}

/** Time of day of milliseconds since 1970. */
export function clock(ms) {
  return new Date(ms).toLocaleTimeString('en-GB');
}

/** `worker/0` of `/job:worker/replica:0/task:0`, `worker/0 GPU:1` of a device of it. */
export function short(name) {
  if (!name) return name ?? '';
  const job = /\/job:([^/]+)/.exec(name);
  const task = /\/task:(\d+)/.exec(name);
  const device = /(?:\/device:|\/)([A-Za-z_]+:\d+)$/.exec(name);
  const isDevice = device && !/^(job|replica|task):/.test(device[1]);
  const where = job ? `${job[1]}${task ? `/${task[1]}` : ''}` : '';
  if (!where && !isDevice) return name;
  return [where, isDevice ? device[1] : ''].filter(Boolean).join(' ');
}

/** Asks the server; its sentence becomes the message of the error. */
export async function api(path, { body, signal } = {}) {
  const request = { signal, headers: { accept: 'application/json' } };
  if (body !== undefined) {
    request.method = 'POST';
    request.headers['content-type'] = 'application/json';
    request.body = JSON.stringify(body);
  }
  const response = await fetch(`/api/${path}`, request);
  let answer = null;
  try {
    answer = await response.json();
  } catch (error) {
    if (isAbort(error)) throw error;
    // The status says enough when the body is no JSON.
  }
  if (!response.ok) {
    throw new Error(answer?.error ?? `the server answered ${response.status} ${response.statusText}`);
  }
  if (answer === null) throw new Error(`/api/${path}: the answer is not JSON`);
  return answer;
}

/** Parameters of an address. */
export function query(parameters) {
  return new URLSearchParams(parameters).toString();
}

/** Calls `once` every `ms` while started and the page is visible; a call begins after the last ended. */
export class Poller {
  constructor(once, ms) {
    Object.assign(this, { once, ms, timer: 0, generation: 0, controller: null });
    document.addEventListener('visibilitychange', () => {
      if (!document.hidden && this.running) this.kick();
    });
  }

  start() {
    if (this.running) return;
    this.running = true;
    this.kick();
  }

  stop() {
    this.running = false;
    this.generation += 1;
    clearTimeout(this.timer);
    this.controller?.abort();
  }

  kick() {
    clearTimeout(this.timer);
    this.controller?.abort();
    this.controller = new AbortController();
    this.generation += 1;
    this.round(this.generation, this.controller.signal);
  }

  async round(generation, signal) {
    if (!document.hidden) {
      try {
        await this.once(signal);
      } catch (error) {
        if (!isAbort(error)) console.warn(error.message);
      }
    }
    if (this.running && generation === this.generation) {
      this.timer = setTimeout(() => this.round(generation, signal), this.ms);
    }
  }
}

/** Whether a request ended because nobody wants it any more. */
export function isAbort(error) {
  return error?.name === 'AbortError';
}

/** Calls `action` once `ms` have passed without another call. */
export function debounced(action, ms) {
  let timer = 0;
  return (...args) => {
    clearTimeout(timer);
    timer = setTimeout(() => action(...args), ms);
  };
}

/** Calls `draw` at most once a frame. */
export function perFrame(draw) {
  let asked = false;
  return () => {
    if (asked) return;
    asked = true;
    requestAnimationFrame((now) => {
      asked = false;
      draw(now);
    });
  };
}

const tooltip = () => document.getElementById('tooltip');

/** Shows lines of text beside the pointer; the first is bold. */
export function showTooltip(x, y, lines) {
  const box = tooltip();
  fill(
    box,
    lines.map((line, i) => h('div', { class: i ? '' : 'tooltip-first' }, line)),
  );
  box.hidden = false;
  const { width, height } = box.getBoundingClientRect();
  const left = x + 14 + width > innerWidth ? x - width - 10 : x + 14;
  const top = y + 16 + height > innerHeight ? y - height - 10 : y + 16;
  box.style.transform = `translate(${Math.max(4, left)}px, ${Math.max(4, top)}px)`;
}

/** Hides it. */
export function hideTooltip() {
  tooltip().hidden = true;
}

let themeColors = null;

/** The colours of the theme by the names of the CSS variables, without dashes in front. */
export function colors() {
  if (themeColors) return themeColors;
  const style = getComputedStyle(document.documentElement);
  const named = (name) => style.getPropertyValue(`--${name}`).trim();
  themeColors = { series: [], heat: [] };
  for (const name of [
    'bg',
    'surface',
    'raised',
    'text',
    'muted',
    'line',
    'accent',
    'good',
    'warning',
    'bad',
    'compute',
    'transfer',
    'wait',
    'dispatch',
    'queueing',
    'critical',
    'scope',
    'edge',
  ]) {
    themeColors[name] = named(name);
  }
  for (let i = 0; i < 12; i += 1) themeColors.series.push(named(`series-${i}`));
  themeColors.heat = ['heat-0', 'heat-1', 'heat-2', 'heat-3'].map(named);
  return themeColors;
}

/** Forgets the colours after the theme changed, and tells everyone who draws. */
export function themeChanged() {
  themeColors = null;
  document.dispatchEvent(new Event('themechange'));
}

/** Red, green and blue of `#rrggbb`. */
export function rgb(hex) {
  const n = parseInt(hex.slice(1, 7), 16);
  return [(n >> 16) & 255, (n >> 8) & 255, n & 255];
}

/** A colour between two `#rrggbb`. */
export function mix(a, b, share) {
  const [from, to] = [rgb(a), rgb(b)];
  const part = from.map((x, i) =>
    Math.round(x + (to[i] - x) * share)
      .toString(16)
      .padStart(2, '0'),
  );
  return `#${part.join('')}`;
}

/** A colour of the heat scale for 0..1. */
export function heat(share) {
  const scale = colors().heat;
  const at = Math.max(0, Math.min(0.9999, share)) * (scale.length - 1);
  return mix(scale[Math.floor(at)], scale[Math.floor(at) + 1], at % 1);
}

/** A card: a titled section with a body. */
export function card(title, attrs, ...children) {
  const { extra, ...rest } = attrs ?? {};
  return h(
    'section',
    { ...rest, class: `card ${rest.class ?? ''}`, 'aria-label': title },
    h('h2', {}, h('span', {}, title), extra ?? null),
    ...children,
  );
}

/** A table from rows of texts or elements; columns are `{title, number, class}`. */
export function table(columns, rows, attrs) {
  const cell = (tag, column, content) =>
    h(tag, { class: `${column.number ? 'number' : ''} ${column.class ?? ''}`.trim() || null }, content);
  return h(
    'table',
    attrs ?? {},
    h(
      'thead',
      {},
      h(
        'tr',
        {},
        columns.map((c) => cell('th', c, c.title)),
      ),
    ),
    h(
      'tbody',
      {},
      rows.map((row) =>
        h(
          'tr',
          row.attrs ?? {},
          (row.cells ?? row).map((content, i) => cell('td', columns[i], content)),
        ),
      ),
    ),
  );
}

/** What a place says that has nothing to show. */
export function empty(text) {
  return h('p', { class: 'empty' }, text);
}

/** A row of buttons of which one is chosen. */
export function choice(label, options, chosen, change) {
  const group = h('div', { class: 'choice', role: 'radiogroup', 'aria-label': label });
  const buttons = options.map(([value, text]) =>
    h(
      'button',
      {
        role: 'radio',
        'aria-checked': String(value === chosen),
        tabindex: value === chosen ? '0' : '-1',
        onclick: () => choose(value),
      },
      text,
    ),
  );
  function choose(value) {
    buttons.forEach((button, i) => {
      const is = options[i][0] === value;
      button.setAttribute('aria-checked', String(is));
      button.tabIndex = is ? 0 : -1;
    });
    change(value);
  }
  group.addEventListener('keydown', (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    event.stopPropagation();
    const at = buttons.findIndex((b) => b.getAttribute('aria-checked') === 'true');
    const next = (at + step + buttons.length) % buttons.length;
    choose(options[next][0]);
    buttons[next].focus();
  });
  group.choose = choose;
  append(group, buttons);
  return group;
}

/** Whether a key belongs to what has the focus: a text, a list, a slider. */
export function isTyping(target) {
  return (
    target instanceof HTMLElement &&
    (target.isContentEditable ||
      /^(TEXTAREA|SELECT)$/.test(target.tagName) ||
      (target.tagName === 'INPUT' && !/^(checkbox|radio|range|button)$/.test(target.type)))
  );
}

/** Sizes a canvas to its box in device pixels; returns whether that changed it. */
export function fitCanvas(canvas) {
  const ratio = Math.min(2, devicePixelRatio || 1);
  const width = Math.max(1, Math.round(canvas.clientWidth * ratio));
  const height = Math.max(1, Math.round(canvas.clientHeight * ratio));
  if (canvas.width === width && canvas.height === height) return false;
  [canvas.width, canvas.height] = [width, height];
  return true;
}

/** Device pixels per CSS pixel that `fitCanvas` used. */
export function pixelRatio() {
  return Math.min(2, devicePixelRatio || 1);
}
