// What has just happened, for some seconds; read out when nothing else is.

import { byId, h } from './dom.js';

const STAYS_MS = 9000;

export function notice(words, kind = 'info') {
  const close = h('button', { type: 'button', class: 'quiet', 'aria-label': 'Dismiss', text: '×', onclick: () => node.remove() });
  const node = h('div', { class: `notice ${kind}` }, h('span', { text: words }), close);
  const list = byId('notices');
  list.append(node);
  while (list.children.length > 4) list.firstElementChild.remove();
  setTimeout(() => node.remove(), STAYS_MS);
}
