// What the caches hold, against the inequality: a key is worth its place while waiting for its events
// would take more bytes (n·v_S) than its rows take (m·v_R). And where one key would be answered.

import { get } from './api.js';
import { ours, poll } from './app.js';
import { linkChoice } from './algorithm.js';
import { attribute, byId, cells, empty, h, keyed, s, text } from './dom.js';
import { bytes, count, plural, seconds, short } from './format.js';

const MOST = 250;
const LISTED = 12;
const [LEFT, BOTTOM, TOP, RIGHT] = [64, 40, 10, 14]; // of the drawing, around the dots

class Scatter {
  constructor(svg, told) {
    this.svg = svg;
    this.told = told;
    this.axes = s('g', { class: 'grid' });
    this.dots = s('g', {});
    svg.replaceChildren(this.axes, this.dots);
  }

  show(keys, eventBytes) {
    const wide = this.svg.clientWidth || 560; // in the page's own pixels, so that texts keep their size
    const tall = Math.round(Math.min(400, Math.max(280, wide * 0.55)));
    attribute(this.svg, 'viewBox', `0 0 ${wide} ${tall}`);
    attribute(this.svg, 'height', tall);
    const points = keys.map((key) => ({ key, x: Math.max(1, key.bytes), y: key.hits * eventBytes }));
    const worth = points.filter((point) => point.y > point.x);
    const values = points.flatMap(({ x, y }) => [x, Math.max(y, eventBytes)]);
    const low = Math.floor(Math.log10(Math.min(...values, 64)));
    const high = Math.ceil(Math.log10(Math.max(...values, 10_000)));
    const span = high - low;
    const x = (value) => LEFT + ((Math.log10(value) - low) / span) * (wide - LEFT - RIGHT);
    const y = (value) => tall - BOTTOM - (value < 10 ** low ? 0 : (Math.log10(value) - low) / span) * (tall - BOTTOM - TOP);
    const marks = Array.from({ length: span + 1 }, (_, at) => 10 ** (low + at));
    const tight = wide / span < 70 ? 2 : 1;
    const grid = marks.flatMap((mark, at) => [
      s('line', { x1: x(mark), x2: x(mark), y1: TOP, y2: tall - BOTTOM }),
      s('line', { x1: LEFT, x2: wide - RIGHT, y1: y(mark), y2: y(mark) }),
      ...(at % tight === 0
        ? [s('text', { x: x(mark), y: tall - BOTTOM + 15, 'text-anchor': at === span ? 'end' : 'middle', text: size(mark) }), s('text', { x: LEFT - 6, y: y(mark) + 4, 'text-anchor': 'end', text: size(mark) })]
        : []),
    ]);
    const corner = 10 ** high;
    this.axes.replaceChildren(
      s('path', { class: 'worth', d: `M${x(10 ** low)} ${y(10 ** low)}L${x(10 ** low)} ${TOP}L${x(corner)} ${TOP}Z` }),
      ...grid,
      s('line', { class: 'limit', x1: x(10 ** low), y1: y(10 ** low), x2: x(corner), y2: y(corner) }),
      s('text', { class: 'axis', x: (LEFT + wide - RIGHT) / 2, y: tall - 6, 'text-anchor': 'middle', text: 'm·v_R: bytes that its rows take' }),
      s('text', { class: 'axis', transform: `translate(14 ${(TOP + tall - BOTTOM) / 2}) rotate(-90)`, 'text-anchor': 'middle', text: 'n·v_S: bytes its events would take' }),
      s('text', { class: 'limit-name', x: LEFT + 10, y: TOP + 16, text: 'worth its place' }),
      s('text', { class: 'limit-name', x: wide - RIGHT - 8, y: tall - BOTTOM - 10, 'text-anchor': 'end', text: 'not yet, or no longer' }),
    );
    keyed(this.dots, points, ({ key }) => key.key, () => ({ node: s('circle', { r: 3.2 }), title: null }), (made, point) => {
      attribute(made.node, 'cx', x(point.x).toFixed(1));
      attribute(made.node, 'cy', y(point.y).toFixed(1));
      attribute(made.node, 'class', point.y > point.x ? 'dot in' : 'dot out');
      if (!made.title) made.node.append((made.title = s('title')));
      text(made.title, `${point.key.key}: n·v_S ${bytes(point.y)}, m·v_R ${bytes(point.x)}`);
    });
    attribute(this.svg, 'aria-label', `${worth.length} of ${points.length} keys lie above the line n·v_S = m·v_R`);
    text(this.told, points.length ? `${count(worth.length)} of the ${count(points.length)} keys shown lie above n·v_S = m·v_R` : '');
  }
}

const size = (value) => (value >= 1e6 ? `${value / 1e6} MB` : value >= 1e3 ? `${value / 1e3} kB` : `${value} B`);

function keyRow(lookUp) {
  return () => {
    const columns = cells(7, [2, 3, 4, 5]);
    const button = h('button', { type: 'button', class: 'link', onclick: () => lookUp(button.textContent) });
    const name = h('th', { scope: 'row' }, button);
    columns[6].classList.add('why');
    return { node: h('tr', {}, name, ...columns.slice(1)), button, columns };
  };
}

function fillKey({ button, columns }, key) {
  text(button, key.key);
  text(columns[1], `${key.slot} · node ${key.node}`);
  text(columns[2], count(key.hits));
  text(columns[3], count(key.rows));
  text(columns[4], bytes(key.bytes));
  text(columns[5], seconds(key.age_s));
  text(columns[6], key.why);
}

function shownRows(found) {
  if (!found.rows.length) return h('p', { text: `${found.table} has no row of this key.` });
  const names = Object.keys(found.rows[0]);
  const head = h('tr', {}, ...names.map((name) => h('th', { scope: 'col', text: name })));
  const rows = found.rows.map((row) => h('tr', {}, ...names.map((name) => h('td', { text: typeof row[name] === 'object' ? JSON.stringify(row[name]) : row[name] }))));
  return h('div', { class: 'wide', tabindex: 0, role: 'region', 'aria-label': `rows of ${found.table}` }, h('table', {}, h('caption', { class: 'hidden', text: `rows of ${found.table}` }), h('thead', {}, head), h('tbody', {}, ...rows)));
}

export function mountCache() {
  const panel = byId('cache');
  const scatter = new Scatter(panel.querySelector('svg'), panel.querySelector('.told'));
  const facts = panel.querySelector('.facts');
  const keys = byId('cache-keys');
  const nothing = panel.querySelector('.nothing');
  const form = byId('lookup');
  const answer = byId('lookup-answer');
  let link = () => 1;

  async function lookUp(key) {
    form.elements.key.value = key;
    try {
      const found = await get(ours(`/lookup?key=${encodeURIComponent(key)}&link=${link()}`));
      const owner = (node) => (node === null ? 'nobody' : `node ${node}`);
      answer.replaceChildren(
        h('p', {}, h('b', { text: found.key }), ` is of slot ${found.slot}: cache phase ${owner(found.cache_phase)}, disk phase ${owner(found.disk_phase)}. An event of it is answered by the `, h('b', { text: found.answered_by }), `: ${found.outcome}.`),
        h('p', { text: found.cached ? `Cached: ${plural(found.cached.rows, 'row', 'rows')}, ${bytes(found.cached.bytes)}, ${found.cached.why}` : 'It is not in the cache.' }),
        shownRows(found),
      );
    } catch (problem) {
      answer.replaceChildren(h('p', { class: 'wrong', text: problem.message }));
    }
  }

  form.addEventListener('submit', (event) => {
    event.preventDefault();
    const key = form.elements.key.value.trim();
    if (key) lookUp(key);
  });

  const look = poll(panel, 4, async () => {
    const [best, largest] = await Promise.all(['hits', 'bytes'].map((by) => get(ours(`/cache?most=${MOST}&by=${by}&link=${link()}`))));
    const all = new Map([...largest.keys, ...best.keys].map((key) => [`${key.node}/${key.key}`, key]));
    scatter.show([...all.values()], best.event_bytes ?? 0);
    const held = best.nodes.map((one) => `node ${one.node}: ${short(one.keys)} keys, ${bytes(one.used_bytes)} of ${bytes(one.budget_bytes)}`);
    const missing = (best.missing ?? []).map((one) => `node ${one.node} does not answer: ${one.reason}`);
    text(facts, [...held, ...missing].join(' · '));
    text(panel.querySelector('.policy'), best.policy ? `Policy: ${best.policy}` : '');
    keyed(keys.querySelector('tbody'), best.keys.slice(0, LISTED), (one) => `${one.node}/${one.key}`, keyRow(lookUp), fillKey);
    empty(nothing, all.size ? null : 'The caches are empty. Keys come in when the disk phase finds them worth it.');
  }, 'inspect');
  link = linkChoice(panel, look);
}
