// Spark's jobs, their runs, and the cache plans that they made.

import { get, post } from './api.js';
import { may, on, ours, poll } from './app.js';
import { ask } from './dialog.js';
import { attribute, byId, cells, empty, h, keyed, text } from './dom.js';
import { bytes, count, seconds, share, short, time } from './format.js';
import { showBadge } from './processes.js';

function jobRow() {
  const name = h('b');
  const words = h('p');
  const last = h('small');
  const start = h('button', { type: 'button', class: 'small', text: 'Start…' });
  const made = { node: h('li', {}, h('div', {}, name, start), words, last), name, words, last, start, job: null };
  start.addEventListener('click', () => begin(made.job));
  return made;
}

function fillJob(made, job) {
  made.job = job;
  text(made.name, job.job);
  text(made.words, job.text);
  text(made.last, job.last ? `last run ${job.last.state}, ${time(job.last.started_at)}, ${seconds(job.last.seconds)}` : 'never run');
  made.start.disabled = !job.can_start || !may('operate');
  attribute(made.start, 'title', job.can_start ? (may('operate') ? null : 'needs the role operate') : job.reason);
  attribute(made.start, 'aria-label', `Start ${job.job}`);
}

function begin(job) {
  ask({
    title: `Start ${job.job}`,
    says: [job.text, 'It runs as a process of its own beside the control service, with about 1.2 GB of memory, and shows up under the long operations. A second run of the same job is refused while one is under way.'],
    fields: [
      { name: 'arguments', label: 'Arguments', placeholder: (job.arguments ?? []).join(' '), hint: job.arguments?.length ? `it takes ${job.arguments.join(', ')}; none are needed` : 'it takes none' },
      { name: 'why', label: 'Why (kept with your name)' },
    ],
    confirm: `Start ${job.job}`,
    send: ({ arguments: words, why }) => post(`v1/spark/jobs/${encodeURIComponent(job.job)}/start`, { arguments: words.split(/\s+/).filter(Boolean), why }),
  });
}

function runRow() {
  const state = h('span', { class: 'badge' });
  const columns = cells(6, [0, 4]);
  const name = h('th', { scope: 'row', class: 'number' });
  columns[2].append(state);
  return { node: h('tr', {}, name, ...columns.slice(1)), name, columns, state };
}

function fillRun({ name, columns, state }, run) {
  text(name, run.id);
  text(columns[1], run.job);
  showBadge(state, run.state);
  text(columns[3], time(run.started_at));
  text(columns[4], seconds(run.seconds));
  const figures = Object.entries(run.figures ?? {}).map(([figure, value]) => `${figure.replaceAll('_', ' ')} ${typeof value === 'number' ? short(value) : value}`);
  text(columns[5], run.error || figures.join(' · '));
}

function planRow() {
  const columns = cells(6, [0, 3, 4, 5]);
  const name = h('th', { scope: 'row', class: 'number' });
  return { node: h('tr', {}, name, ...columns.slice(1)), name, columns };
}

function fillPlan({ name, columns }, plan) {
  text(name, plan.version);
  text(columns[1], time(plan.made_at));
  text(columns[2], plan.sent_at ? `${time(plan.sent_at)}, ${count(plan.sent)} keys` : 'not sent');
  const keys = plan.keys && typeof plan.keys === 'object' ? plan.keys.chosen : plan.keys;
  text(columns[3], short(keys));
  text(columns[4], share(plan.expected_hit_rate));
  text(columns[5], bytes(plan.slot_bytes));
}

export function mountSpark() {
  const panel = byId('spark');
  const note = panel.querySelector('.nothing');
  const look = poll(panel, 5, async () => {
    const [jobs, runs, plans] = await Promise.all([get('v1/spark/jobs'), get('v1/spark/runs'), get(ours('/plans?most=8'))]);
    keyed(panel.querySelector('.jobs'), jobs, (one) => one.job, jobRow, fillJob);
    keyed(panel.querySelector('.runs tbody'), runs.slice(0, 10), (one) => one.id, runRow, fillRun);
    keyed(panel.querySelector('.plans tbody'), plans, (one) => one.version, planRow, fillPlan);
    empty(note, runs.length ? null : 'No job has run yet.');
    empty(panel.querySelector('.no-plan'), plans.length ? null : 'No plan yet: the job frequency makes one.');
  });
  on('changed', look);
}
