// Processes with their state and load, the memory of each node by its parts, and who owns which slot.

import { get } from './api.js';
import { on, poll } from './app.js';
import { StackedBar, showLegend } from './charts.js';
import { attribute, byId, cells, empty, h, keyed, text } from './dom.js';
import { budget, held, isDown, named, parts } from './figures.js';
import { bytes, rate, seconds, share, short } from './format.js';

const OUT = ['events.clean', 'events.mapped', 'events.outputs'];

export function badge(state) {
  const kind = { ready: 'good', running: 'good', done: 'good', gone: 'bad', failed: 'bad', lost: 'bad', degraded: 'bad' }[state] ?? 'warn';
  return { words: state, kind: `badge ${kind}` };
}

export function showBadge(element, state) {
  const { words, kind } = badge(state);
  text(element, words);
  attribute(element, 'class', kind);
}

function row() {
  const state = h('span', { class: 'badge' });
  const reason = h('small', { class: 'reason' });
  const bar = new StackedBar('memory');
  const memory = h('span', { class: 'told' });
  const columns = cells(8, [2, 3, 4, 6, 7]);
  const name = h('th', { scope: 'row' });
  columns[1].append(state, ' ', reason);
  columns[5].append(bar.node, memory);
  return { node: h('tr', {}, name, ...columns.slice(1)), name, columns, state, reason, bar, memory };
}

function fill(made, process) {
  const { rates = {}, figures = {} } = process;
  const down = isDown(process);
  text(made.name, named(process));
  showBadge(made.state, process.state);
  text(made.reason, process.state === 'gone' ? `last heard of ${seconds(Math.round(process.heard_s ?? 0))} ago` : process.reason ?? '');
  attribute(made.node, 'class', down ? 'down' : null);
  const out = OUT.reduce((sum, name) => sum + (rates[name] ?? 0), 0);
  text(made.columns[2], down ? '–' : rate(rates['events.in'] ?? 0));
  text(made.columns[3], down ? '–' : rate(out));
  text(made.columns[4], down ? '–' : short(process.lag ?? figures.lag ?? 0));
  const own = coloured(process);
  attribute(made.bar.node, 'hidden', budget(process) && !down ? null : '');
  made.bar.show(own, Math.max(budget(process), held(process)));
  text(made.memory, budget(process) && !down ? `${bytes(held(process))} of ${bytes(budget(process))}` : '');
  text(made.columns[6], down ? '–' : bytes(process.resident_bytes ?? figures.resident_bytes));
  text(made.columns[7], down ? '–' : share(rates.cpu_seconds, 0));
}

const colours = new Map();

/** One colour for one part, whoever holds it. */
function colour(name) {
  if (!colours.has(name)) colours.set(name, `c${(colours.size % 8) + 1}`);
  return colours.get(name);
}

const coloured = (process) => parts(process).map(([name, value]) => ({ name, value, kind: colour(name), told: bytes(value) }));

// --- memory, node by node

function nodes(services) {
  const found = new Map();
  for (const process of services.filter((one) => budget(one))) {
    const node = found.get(process.node) ?? { node: process.node, phases: [] };
    node.phases.push(process);
    found.set(process.node, node);
  }
  return [...found.values()].sort((a, b) => a.node - b.node);
}

function memoryRow() {
  const title = h('h3');
  const phases = h('div');
  return { node: h('div', { class: 'node-memory' }, title, phases), title, phases };
}

function phaseRow() {
  const name = h('span', { class: 'name' });
  const told = h('span', { class: 'told' });
  const bar = new StackedBar('memory');
  const legend = h('ul', { class: 'legend' });
  return { node: h('div', { class: 'phase' }, h('div', { class: 'line' }, name, told), bar.node, legend), name, told, bar, legend };
}

function fillMemory(made, { node, phases }) {
  const up = phases.filter((one) => !isDown(one));
  const all = up.reduce((sum, one) => sum + budget(one), 0);
  const used = up.reduce((sum, one) => sum + held(one), 0);
  text(made.title, `node ${node} · ${up.length ? `${bytes(used)} of ${bytes(all)}` : 'gone'}`);
  attribute(made.node, 'class', up.length < phases.length ? 'node-memory down' : 'node-memory');
  keyed(made.phases, phases, (one) => one.service, phaseRow, (phase, process) => {
    const down = isDown(process);
    text(phase.name, process.service.replace('_', ' '));
    text(phase.told, down ? process.state : `${bytes(held(process))} of ${bytes(budget(process))}`);
    const own = down ? [] : coloured(process);
    phase.bar.show(own, Math.max(budget(process), held(process)));
    const free = budget(process) - held(process);
    showLegend(phase.legend, down || free <= 0 ? own : [...own, { name: 'free', kind: 'free', told: bytes(free) }]);
  });
}

// --- slots

function slotRow() {
  const columns = cells(4, [3]);
  const name = h('th', { scope: 'row' });
  return { node: h('tr', {}, name, ...columns.slice(1)), name, columns };
}

function fillSlot({ node, name, columns }, slot) {
  const owner = (of) => (of === null || of === undefined ? 'nobody' : `node ${of}`);
  text(name, slot.link > 1 ? `${slot.slot} · table ${slot.link}` : slot.slot);
  text(columns[1], owner(slot.cache_phase));
  text(columns[2], owner(slot.disk_phase));
  text(columns[3], short(slot.backlog ?? 0));
  const lost = slot.cache_phase === null || slot.disk_phase === null;
  attribute(node, 'class', lost ? 'down' : null);
}

export function mountProcesses() {
  const panel = byId('processes');
  const body = panel.querySelector('tbody');
  const note = panel.querySelector('.note');
  const memory = byId('memory');
  on('stats', ({ services }) => {
    empty(note, services.length ? null : 'No process has been heard of yet.');
    keyed(body, services, named, row, fill);
    const found = nodes(services);
    keyed(memory.querySelector('.nodes'), found, (one) => one.node, memoryRow, fillMemory);
    empty(memory.querySelector('.note'), found.length ? null : 'No phase has told of its memory yet.');
  });
  const slots = byId('slots');
  poll(slots, 2, async () => {
    const found = await get('v1/slots');
    keyed(slots.querySelector('tbody'), found, (one) => `${one.link}/${one.slot}`, slotRow, fillSlot);
  });
}

