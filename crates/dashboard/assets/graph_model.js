// A graph as a tree of scopes. Items are numbered: nodes first, as the server numbers them, then scopes.

export class GraphModel {
  /** `names` of nodes; an edge is three numbers in `edges`: from, to, bytes. */
  constructor(names, edges) {
    this.nodes = names.length;
    this.edges = edges;
    this.names = names;
    this.scopeNames = [''];
    this.scopeOf = new Map([['', names.length]]);
    this.root = names.length;
    this.parents = [];
    this.scopeParents = [-1];
    for (let i = 0; i < names.length; i += 1) this.parents.push(this.scope(parentName(names[i])));
    // A node that is also a scope lies inside that scope.
    for (let i = 0; i < names.length; i += 1) {
      const own = this.scopeOf.get(names[i]);
      if (own !== undefined && own !== this.root) this.parents[i] = own;
    }
    this.items = this.nodes + this.scopeNames.length;
    this.parent = Int32Array.from([...this.parents, ...this.scopeParents]);
    delete this.parents;
    this.countTree();
  }

  /** The number of the scope called `name`, made with all above it if it is new. */
  scope(name) {
    const known = this.scopeOf.get(name);
    if (known !== undefined) return known;
    // Without recursion: nobody bounds the depth of a name.
    const missing = [];
    let above = name;
    while (!this.scopeOf.has(above)) {
      missing.push(above);
      above = parentName(above);
    }
    let parent = this.scopeOf.get(above);
    for (const scope of missing.reverse()) {
      const id = this.nodes + this.scopeNames.length;
      this.scopeNames.push(scope);
      this.scopeParents.push(parent);
      this.scopeOf.set(scope, id);
      parent = id;
    }
    return parent;
  }

  countTree() {
    const { items, parent } = this;
    this.depth = new Int16Array(items);
    this.leaves = new Int32Array(items);
    const children = new Int32Array(items + 1);
    // A scope has a greater number than the one that it lies in.
    for (let i = this.nodes + 1; i < items; i += 1) this.depth[i] = this.depth[parent[i]] + 1;
    for (let i = 0; i < this.nodes; i += 1) {
      this.depth[i] = this.depth[parent[i]] + 1;
      this.leaves[i] = 1;
      this.leaves[parent[i]] += 1;
    }
    for (let i = items - 1; i > this.nodes; i -= 1) this.leaves[parent[i]] += this.leaves[i];
    for (let i = 0; i < items; i += 1) if (parent[i] >= 0) children[parent[i] + 1] += 1;
    for (let i = 0; i < items; i += 1) children[i + 1] += children[i];
    this.childStart = children.slice();
    this.childList = new Int32Array(items - 1);
    const next = children.slice();
    // Scopes before nodes, each in the order of the graph.
    for (const [from, to] of [
      [this.nodes + 1, items],
      [0, this.nodes],
    ]) {
      for (let i = from; i < to; i += 1) this.childList[next[parent[i]]++] = i;
    }
  }

  isScope(item) {
    return item >= this.nodes;
  }

  name(item) {
    return item < this.nodes ? this.names[item] : this.scopeNames[item - this.nodes];
  }

  /** The last part of the name; a node that is also a scope is in brackets. */
  label(item) {
    const name = this.name(item);
    const last = name.slice(name.lastIndexOf('/') + 1);
    return item < this.nodes && this.parent[item] !== this.root && this.name(this.parent[item]) === name
      ? `(${last})`
      : last;
  }

  children(item) {
    return this.childList.subarray(this.childStart[item], this.childStart[item + 1]);
  }

  /** The item that stands for `item` when only the scopes in `expanded` are open. */
  visible(item, expanded) {
    let seen = item;
    for (let at = this.parent[item]; at >= 0; at = this.parent[at]) {
      if (at !== this.root && !expanded.has(at)) seen = at;
    }
    return seen;
  }

  /** Edges by node, once asked for: `start` and, from there on, positions of edges. */
  edgesOf(direction) {
    this.byNode ??= {};
    if (this.byNode[direction]) return this.byNode[direction];
    const end = direction === 'in' ? 1 : 0;
    const start = new Int32Array(this.nodes + 1);
    for (let e = end; e < this.edges.length; e += 3) start[this.edges[e] + 1] += 1;
    for (let i = 0; i < this.nodes; i += 1) start[i + 1] += start[i];
    const list = new Int32Array(this.edges.length / 3);
    const next = start.slice();
    for (let e = end; e < this.edges.length; e += 3) list[next[this.edges[e]]++] = e - end;
    this.byNode[direction] = { start, list };
    return this.byNode[direction];
  }

  /** The nodes beyond the edges of a node or scope, with summed bytes: [[node, bytes]…]. */
  neighbours(item, direction) {
    const other = direction === 'in' ? 0 : 1;
    const found = new Map();
    const add = (e) => {
      const node = this.edges[e + other];
      const bytes = this.edges[e + 2];
      const known = found.get(node);
      found.set(node, known === undefined || known < 0 ? bytes : known + Math.max(0, bytes));
    };
    if (!this.isScope(item)) {
      const { start, list } = this.edgesOf(direction);
      for (let i = start[item]; i < start[item + 1]; i += 1) add(list[i]);
    } else {
      for (let e = 0; e < this.edges.length; e += 3) {
        const [from, to] = [this.isInside(this.edges[e], item), this.isInside(this.edges[e + 1], item)];
        if (from !== to && (direction === 'in' ? to : from)) add(e);
      }
    }
    return [...found].sort((a, b) => b[1] - a[1]);
  }

  isInside(node, scope) {
    for (let at = this.parent[node]; at >= 0; at = this.parent[at]) if (at === scope) return true;
    return false;
  }
}

function parentName(name) {
  const slash = name.lastIndexOf('/');
  return slash < 0 ? '' : name.slice(0, slash);
}
