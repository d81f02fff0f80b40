// Which algorithm runs on each node, why, what it costs by measurement, and where a scan is in R.

import { get } from './api.js';
import { app, on, ours, poll } from './app.js';
import { byId, cells, empty, h, keyed, text, width } from './dom.js';
import { count, rate, seconds, share } from './format.js';

const SHOWN_RANKS = 6;

function nodeRow() {
  const running = h('b', { class: 'running' });
  const title = h('h3', {}, h('span'), ' ', running);
  const reason = h('p', { class: 'why' });
  const facts = h('p', { class: 'facts' });
  const here = h('span');
  const scan = h('div', { class: 'scan' }, h('div', { class: 'track', role: 'img' }, here), h('small'));
  const ranking = h('ol', { class: 'ranking' });
  const factors = h('tbody');
  const table = h(
    'details',
    {},
    h('summary', { text: 'cost factors, assumed and measured' }),
    h('table', {}, h('caption', { class: 'hidden', text: 'Cost factors' }), h('thead', {}, h('tr', {}, ...['factor', 'assumed', 'measured', 'off by'].map((name, at) => h('th', { scope: 'col', class: at ? 'number' : null, text: name })))), factors),
  );
  return { node: h('div', { class: 'node-algorithm' }, title, reason, scan, facts, ranking, table), title, running, reason, facts, scan, here, ranking, factors, table };
}

function fill(made, node) {
  text(made.title.firstElementChild, `node ${node.node}`);
  text(made.running, node.running ?? '–');
  text(made.reason, node.reason || 'no reason is told');
  const scans = node.page !== null && node.page !== undefined;
  const track = made.scan.firstElementChild;
  track.hidden = !scans;
  made.here.style.setProperty('left', `${scans ? (100 * node.page) / Math.max(1, node.pages) : 0}%`);
  track.setAttribute('aria-label', scans ? `The scan is at page ${node.page} of ${node.pages}` : 'no scan');
  text(made.scan.lastElementChild, scans ? `scan at page ${count(node.page)} of ${count(node.pages)} (${share(node.page / Math.max(1, node.pages))} of R)` : `no scan: it looks keys up in R${node.pages ? ` of ${count(node.pages)} pages` : ''}`);
  const parameters = Object.entries(node.parameters ?? {}).map(([name, value]) => ` · ${name} ${value < 1 ? value.toFixed(2) : count(value)}`).join('');
  text(made.facts, `${count(node.pending_events)} events pending · ${count(node.reads)} reads · ${count(node.rows_read)} rows read · ${count(node.choices)} ${node.choices === 1 ? 'choice' : 'choices'}${parameters}`);
  const ranked = (node.ranking ?? []).slice(0, SHOWN_RANKS);
  const best = Math.max(...ranked.map((one) => one.rate ?? 0), 1);
  keyed(made.ranking, ranked, (one) => one.algorithm, rankRow, (rank, one) => {
    text(rank.name, one.algorithm);
    text(rank.told, one.rate ? rate(one.rate) : 'cannot');
    width(rank.bar, (one.rate ?? 0) / best);
    rank.node.className = one.algorithm === node.running ? 'chosen' : '';
  });
  const factors = Object.entries(node.factors ?? {});
  made.table.hidden = factors.length === 0;
  keyed(made.factors, factors, ([name]) => name, factorRow, ({ name, columns }, [title, { assumed, measured }]) => {
    text(name, title.replaceAll('_', ' '));
    text(columns[1], seconds(assumed));
    text(columns[2], seconds(measured));
    text(columns[3], assumed && measured ? `× ${(measured / assumed).toFixed(2)}` : '–');
  });
}

function rankRow() {
  const [name, bar, told] = [h('span', { class: 'name' }), h('span', { class: 'fill' }), h('span', { class: 'told' })];
  return { node: h('li', {}, name, h('span', { class: 'track' }, bar), told), name, bar, told };
}

function factorRow() {
  const columns = cells(4, [1, 2, 3]);
  const name = h('th', { scope: 'row' });
  return { node: h('tr', {}, name, ...columns.slice(1)), name, columns };
}

/** A choice of the table, in a chain of several. */
export function linkChoice(panel, again) {
  const select = panel.querySelector('.link');
  select.addEventListener('change', again);
  on('pipeline', () => {
    const links = app.topology.links;
    select.parentElement.hidden = links < 2;
    if (select.options.length !== links) {
      select.replaceChildren(...Array.from({ length: links }, (_, at) => h('option', { value: at + 1, text: `table ${at + 1}` })));
    }
  });
  return () => select.value || 1;
}

export function mountAlgorithm() {
  const panel = byId('algorithm');
  const nodes = panel.querySelector('.nodes');
  const missing = panel.querySelector('.missing');
  const look = poll(panel, 2, async () => {
    const found = await get(ours(`/algorithm?link=${link()}`));
    text(panel.querySelector('.asked'), found.algorithm);
    keyed(nodes, found.nodes, (one) => one.node, nodeRow, fill);
    empty(missing, (found.missing ?? []).map((one) => `node ${one.node} does not answer: ${one.reason}`).join('; ') || null);
  });
  const link = linkChoice(panel, look);
}
