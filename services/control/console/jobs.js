// Long operations as they go on, and who changed what.

import { get, post } from './api.js';
import { app, emit, may, on, poll, refreshPipeline } from './app.js';
import { ask } from './dialog.js';
import { attribute, byId, cells, empty, h, keyed, text, width } from './dom.js';
import { seconds, time } from './format.js';
import { notice } from './notices.js';
import { showBadge } from './processes.js';

const SHOWN = 12;
const CANCELLABLE = { drain: 'The pipeline goes back to what it did before.', spark: 'The Spark job is stopped; what it has not finished is not used.', replay: 'It ends after the letter under way; those that were replayed stay replayed.' };

function row() {
  const bar = h('span', { class: 'fill' });
  const state = h('span', { class: 'badge' });
  const cancel = h('button', { type: 'button', class: 'small', text: 'Cancel' });
  const columns = cells(6, [0, 4]);
  const name = h('th', { scope: 'row', class: 'number' });
  columns[2].append(state);
  const words = h('span');
  columns[3].append(h('span', { class: 'track' }, bar), words);
  columns[5].append(cancel);
  const made = { node: h('tr', {}, name, ...columns.slice(1)), name, columns, bar, state, words, cancel, job: null };
  cancel.addEventListener('click', () => stop(made.job));
  return made;
}

function fill(made, job) {
  made.job = job;
  text(made.name, job.id);
  text(made.columns[1], job.kind);
  showBadge(made.state, job.state);
  const share = job.state === 'done' ? 1 : job.progress;
  width(made.bar, share ?? 0);
  attribute(made.bar.parentElement, 'class', share === null && job.state === 'running' ? 'track unknown' : 'track');
  text(made.words, job.error || job.text || told(job.result));
  text(made.columns[4], job.ended_at ? seconds((new Date(job.ended_at) - new Date(job.started_at)) / 1000) : `since ${time(job.started_at)}`);
  made.cancel.hidden = !(job.state === 'running' && job.kind in CANCELLABLE && may('operate'));
}

const told = (result) => (result ? Object.entries(result).filter(([, value]) => value !== null).map(([name, value]) => `${name} ${typeof value === 'object' ? JSON.stringify(value) : value}`).join(', ') : '');

function stop(job) {
  ask({
    title: `Cancel job ${job.id}, ${job.kind}`,
    says: [CANCELLABLE[job.kind]],
    confirm: 'Cancel the job',
    danger: true,
    send: () => post(`v1/jobs/${job.id}/cancel`),
  });
}

export function mountJobs() {
  const panel = byId('jobs');
  const body = panel.querySelector('tbody');
  const show = () => {
    const all = [...app.jobs.values()].sort((a, b) => b.id - a.id).slice(0, SHOWN);
    keyed(body, all, (one) => one.id, row, fill);
    empty(panel.querySelector('.nothing'), all.length ? null : 'No long operation yet: pausing, draining, changing settings, replaying and Spark jobs show up here.');
    const under = all.filter((one) => one.state === 'running').length;
    text(panel.querySelector('.under'), under ? `${under} in progress` : '');
  };
  const take = (job) => {
    const before = app.jobs.get(job.id);
    app.jobs.set(job.id, job);
    show();
    if (before?.state === job.state || job.state === 'running' || !before) return;
    notice(`Job ${job.id}, ${job.kind}: ${job.state}${job.error ? `: ${job.error}` : ''}`, job.state === 'done' ? 'good' : 'bad');
    emit('changed');
    refreshPipeline().catch(() => {});
  };
  on('job', take);
  poll(panel, 10, async () => {
    for (const job of await get(`v1/jobs?most=${SHOWN}`)) take(job);
    show();
  });

  const changes = byId('changes');
  const look = poll(changes, 10, async () => {
    const found = await get('v1/changes?most=12');
    keyed(changes.querySelector('tbody'), found, (one) => one.id, changeRow, fillChange);
    empty(changes.querySelector('.nothing'), found.length ? null : 'Nobody has changed anything yet.');
  });
  on('changed', look);
}

function changeRow() {
  const columns = cells(4);
  return { node: h('tr', {}, ...columns), columns };
}

function fillChange({ node, columns }, change) {
  text(columns[0], time(change.at));
  text(columns[1], change.by);
  text(columns[2], change.action);
  const detail = change.detail?.changes?.join(', ') || told(change.detail ?? null);
  text(columns[3], [detail, change.why && `“${change.why}”`].filter(Boolean).join(' · '));
  attribute(node, 'class', change.action === 'access.refused' ? 'down' : null);
}
