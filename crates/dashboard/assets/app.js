// The frame: tabs by address (`#graph`), theme, keyboard, and what the server says that there is.

import { api, fill, h, hideTooltip, isTyping, Poller, setText, themeChanged } from './ui.js';
import { ClusterView } from './cluster.js';
import { GraphView } from './graph.js';
import { TimelineView } from './timeline.js';
import { TrainingView } from './training.js';
import { SimulationView } from './simulation.js';

const TABS = [
  {
    id: 'cluster',
    title: 'Cluster',
    view: ClusterView,
    has: (s) => s.has.cluster,
    why: 'no cluster is watched: start with --connect',
  },
  { id: 'graph', title: 'Graph', view: GraphView, has: (s) => s.has.graph, why: 'no session has a graph yet' },
  {
    id: 'timeline',
    title: 'Timeline',
    view: TimelineView,
    has: (s) => s.has.timeline,
    why: 'no step was recorded, and none can be traced here',
  },
  {
    id: 'training',
    title: 'Training',
    view: TrainingView,
    has: (s) => s.has.logdir,
    why: 'no folder of event files is read: start with --logdir',
  },
  {
    id: 'simulation',
    title: 'Simulation',
    view: SimulationView,
    has: (s) => s.has.simulation,
    why: 'nothing is simulated: start with --simulate',
  },
];

const SHORTCUTS = [
  ['1 … 5', 'Cluster, Graph, Timeline, Training, Simulation'],
  ['/', 'search'],
  ['← → ↑ ↓', 'pan; in lists, move'],
  ['+ − 0', 'zoom in, zoom out, show all'],
  ['Enter', 'in the graph: expand or collapse the selected scope'],
  ['n p', 'timeline: next and previous span of the row'],
  ['c', 'timeline: next piece of the critical path'],
  ['Escape', 'close, clear the selection'],
  ['t', 'light or dark'],
  ['?', 'this list'],
];

const main = document.getElementById('main');
const help = document.getElementById('help');
const connection = document.getElementById('connection');
const views = new Map();
const links = new Map();
let state = null;
let current = null;

function start() {
  makeTabs();
  makeHelp();
  setTheme(localStorage.getItem('theme'));
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => setTheme(localStorage.getItem('theme')));
  document.getElementById('theme-button').addEventListener('click', toggleTheme);
  document.getElementById('help-button').addEventListener('click', () => help.showModal());
  addEventListener('hashchange', route);
  addEventListener('keydown', onKey);
  new Poller(readState, 4000).start();
}

function makeTabs() {
  TABS.forEach((tab, i) => {
    const link = h(
      'a',
      { href: `#${tab.id}`, role: 'tab', id: `tab-${tab.id}`, 'aria-controls': 'main', 'aria-disabled': 'true' },
      tab.title,
      h('kbd', { 'aria-hidden': 'true' }, String(i + 1)),
    );
    link.addEventListener('click', (event) => {
      if (link.getAttribute('aria-disabled') === 'true') event.preventDefault();
    });
    links.set(tab.id, link);
    document.getElementById('tabs').append(link);
  });
}

function makeHelp() {
  fill(
    help,
    h('h2', { id: 'help-title' }, 'Keyboard'),
    h(
      'table',
      {},
      SHORTCUTS.map(([key, what]) => h('tr', {}, h('td', {}, h('kbd', {}, key)), h('td', {}, what))),
    ),
    h('button', { class: 'primary', onclick: () => help.close() }, 'Close'),
  );
}

async function readState(signal) {
  try {
    state = await api('state', { signal });
  } catch (error) {
    if (signal.aborted) return;
    setText(connection, 'the dashboard does not answer');
    connection.title = error.message;
    connection.classList.add('lost');
    throw error;
  }
  connection.classList.remove('lost');
  setText(connection, `Thalweg ${state.version}`);
  const title = document.getElementById('title');
  setText(title, state.title);
  title.title = state.title;
  document.title = `${state.title} – Thalweg`;
  for (const tab of TABS) {
    const link = links.get(tab.id);
    const has = Boolean(tab.has(state));
    link.setAttribute('aria-disabled', String(!has));
    link.title = has ? '' : tab.why;
  }
  if (!current) route();
}

function route() {
  if (!state) return;
  const wanted = location.hash.slice(1).split('?')[0];
  let tab = TABS.find((t) => t.id === wanted && t.has(state));
  tab ??= TABS.find((t) => t.has(state));
  if (!tab) {
    fill(main, h('p', { class: 'empty' }, 'There is nothing to show yet.'));
    return;
  }
  if (tab.id !== wanted) history.replaceState(null, '', `#${tab.id}`);
  show(tab);
}

function show(tab) {
  if (current?.tab === tab) return;
  hideTooltip();
  current?.view.hide();
  if (!views.has(tab.id)) {
    const root = h('div', { role: 'tabpanel', 'aria-labelledby': `tab-${tab.id}`, id: `view-${tab.id}` });
    views.set(tab.id, { root, view: new tab.view(root, () => state) });
  }
  const { root, view } = views.get(tab.id);
  main.replaceChildren(root);
  current = { tab, view };
  for (const [id, link] of links) {
    const is = id === tab.id;
    link.setAttribute('aria-selected', String(is));
    link.tabIndex = is ? 0 : -1;
  }
  view.show();
}

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented || help.open) return;
  const tabs = event.target.closest?.('[role="tablist"]');
  if (tabs && (event.key === 'ArrowRight' || event.key === 'ArrowLeft')) {
    moveTab(event.key === 'ArrowRight' ? 1 : -1);
    event.preventDefault();
    return;
  }
  if (isTyping(event.target)) {
    if (event.key === 'Escape') event.target.blur();
    return;
  }
  if (/^[1-5]$/.test(event.key)) {
    const tab = TABS[Number(event.key) - 1];
    if (state && tab.has(state)) location.hash = tab.id;
  } else if (event.key === '?') help.showModal();
  else if (event.key === 't') toggleTheme();
  else if (event.key === '/') current?.view.search?.();
  else if (!current?.view.key?.(event)) return;
  event.preventDefault();
}

function moveTab(step) {
  const usable = TABS.filter((t) => state && t.has(state));
  const at = usable.indexOf(current?.tab);
  const next = usable[(at + step + usable.length) % usable.length];
  if (!next) return;
  location.hash = next.id;
  links.get(next.id).focus();
}

function setTheme(stored) {
  const dark = stored ? stored === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
  document.documentElement.dataset.theme = dark ? 'dark' : 'light';
  themeChanged();
}

function toggleTheme() {
  const next = document.documentElement.dataset.theme === 'dark' ? 'light' : 'dark';
  localStorage.setItem('theme', next);
  setTheme(next);
}

start();
