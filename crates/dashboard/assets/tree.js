// A list of the scopes and nodes of a graph as a tree. Only the rows in sight are elements.

import { h, perFrame } from './ui.js';

const ROW = 22;

export class Tree {
  /** `events`: select(item), toggle(item), open(item) when Enter is pressed on a node. */
  constructor(root, events) {
    Object.assign(this, { root, events, rows: [], position: new Map(), selected: -1, color: () => null });
    root.setAttribute('role', 'tree');
    root.setAttribute('aria-label', 'Scopes and nodes');
    root.tabIndex = 0;
    this.content = h('div', { role: 'presentation' });
    root.append(this.content);
    this.draw = perFrame(() => this.paint());
    root.addEventListener('scroll', this.draw);
    new ResizeObserver(this.draw).observe(root);
    root.addEventListener('keydown', (event) => this.key(event));
    root.addEventListener('click', (event) => this.click(event));
  }

  /** Shows the open scopes of `model`. */
  set(model, expanded) {
    Object.assign(this, { model, expanded });
    this.rows = [];
    const stack = [...model.children(model.root)].reverse();
    while (stack.length) {
      const item = stack.pop();
      this.rows.push(item);
      if (!expanded.has(item)) continue;
      const children = model.children(item);
      for (let i = children.length - 1; i >= 0; i -= 1) stack.push(children[i]);
    }
    this.position = new Map(this.rows.map((item, i) => [item, i]));
    this.content.style.height = `${this.rows.length * ROW}px`;
    this.draw();
  }

  /** Marks an item and brings it into sight. */
  select(item, quietly) {
    this.selected = item;
    const at = this.position.get(item);
    if (at !== undefined && !quietly) {
      const [top, bottom] = [at * ROW, at * ROW + ROW];
      if (top < this.root.scrollTop) this.root.scrollTop = top;
      else if (bottom > this.root.scrollTop + this.root.clientHeight)
        this.root.scrollTop = bottom - this.root.clientHeight;
    }
    this.draw();
  }

  paint() {
    if (!this.model) return;
    const first = Math.max(0, Math.floor(this.root.scrollTop / ROW) - 6);
    const last = Math.min(this.rows.length, Math.ceil((this.root.scrollTop + this.root.clientHeight) / ROW) + 6);
    const rows = [];
    for (let i = first; i < last; i += 1) rows.push(this.row(i));
    this.content.replaceChildren(...rows);
    const has = this.position.get(this.selected);
    if (has !== undefined && has >= first && has < last)
      this.root.setAttribute('aria-activedescendant', `tree-${this.selected}`);
    else this.root.removeAttribute('aria-activedescendant');
  }

  row(i) {
    const item = this.rows[i];
    const { model } = this;
    const isScope = model.isScope(item);
    const isOpen = this.expanded.has(item);
    const siblings = model.children(model.parent[item]);
    const swatch = h('span', { class: 'swatch' });
    swatch.style.background = this.color(item) ?? 'transparent';
    const row = h(
      'div',
      {
        class: `tree-row${item === this.selected ? ' selected' : ''}`,
        role: 'treeitem',
        id: `tree-${item}`,
        'data-item': item,
        'aria-level': model.depth[item],
        'aria-selected': String(item === this.selected),
        'aria-setsize': siblings.length,
        'aria-posinset': siblings.indexOf(item) + 1,
        'aria-expanded': isScope ? String(isOpen) : null,
        title: model.name(item),
      },
      h('span', { class: 'twist', 'aria-hidden': 'true' }, isScope ? (isOpen ? '▾' : '▸') : ''),
      swatch,
      h('span', { class: 'label' }, model.label(item)),
      isScope ? h('span', { class: 'size' }, String(model.leaves[item])) : null,
    );
    row.style.top = `${i * ROW}px`;
    row.style.paddingLeft = `${4 + (model.depth[item] - 1) * 12}px`;
    return row;
  }

  click(event) {
    const row = event.target.closest('[data-item]');
    if (!row) return;
    const item = Number(row.dataset.item);
    this.events.select(item);
    if (this.model.isScope(item)) this.events.toggle(item);
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || !this.rows.length) return;
    const at = this.position.get(this.selected) ?? -1;
    const go = (i) => this.events.select(this.rows[Math.max(0, Math.min(this.rows.length - 1, i))]);
    const item = this.rows[at];
    const isScope = item !== undefined && this.model.isScope(item);
    const page = Math.max(1, Math.floor(this.root.clientHeight / ROW) - 1);
    switch (event.key) {
      case 'ArrowDown':
        go(at + 1);
        break;
      case 'ArrowUp':
        go(at < 0 ? 0 : at - 1);
        break;
      case 'PageDown':
        go(at + page);
        break;
      case 'PageUp':
        go(at - page);
        break;
      case 'Home':
        go(0);
        break;
      case 'End':
        go(this.rows.length - 1);
        break;
      case 'ArrowRight':
        if (isScope && !this.expanded.has(item)) this.events.toggle(item);
        else if (isScope) go(at + 1);
        break;
      case 'ArrowLeft':
        if (isScope && this.expanded.has(item)) this.events.toggle(item);
        else if (item !== undefined && this.model.parent[item] !== this.model.root)
          this.events.select(this.model.parent[item]);
        break;
      case 'Enter':
      case ' ':
        if (isScope) this.events.toggle(item);
        else if (item !== undefined) this.events.open(item);
        break;
      default:
        return;
    }
    event.preventDefault();
    event.stopPropagation();
  }
}
