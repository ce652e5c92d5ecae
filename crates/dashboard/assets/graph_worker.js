// The worker that lays graphs out. It keeps the graph; each request names the open scopes.

import { GraphModel } from './graph_model.js';
import { layout } from './graph_layout.js';

let model = null;

addEventListener('message', ({ data }) => {
  if (data.names) {
    model = new GraphModel(data.names, data.edges);
    return;
  }
  const answer = layout(model, new Set(data.expanded));
  const buffers = [answer.items, answer.boxes, answer.from, answer.to, answer.bytes].map((a) => a.buffer);
  postMessage({ request: data.request, ...answer }, buffers);
});
