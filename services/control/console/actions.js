// What can be done to the running pipeline. Every button asks first, and says what will happen.

import { call, post } from './api.js';
import { app, emit, may, on, ours } from './app.js';
import { ask } from './dialog.js';
import { attribute, byId } from './dom.js';
import { bytes, count, rate } from './format.js';
import { notice } from './notices.js';

// As dovetail.join.algorithms knows them; a test compares.
export const ALGORITHMS = ['auto', 'srj', 'inlj', 'ssbj', 'ssbj-index', 'meshjoin', 'ameshjoin', 'cmeshjoin', 'hybridjoin', 'cachejoin', 'pcsrj'];

const WHY = { name: 'why', label: 'Why (kept with your name)' };

function flowing() {
  const stats = app.stats;
  if (!stats?.totals) return '';
  return ` Now: ${rate(stats.rates?.in)} in, ${count(stats.totals.in_flight)} in flight, ${count(stats.totals.waiting)} waiting at the source.`;
}

const ACTIONS = {
  pause: {
    title: 'Pause',
    says: () => [
      `Every stage takes nothing more after the step under way. What was taken is answered or waits; assignments stay, nothing is lost or repeated.${flowing()}`,
      'The source goes on filling up, and is read from where it stopped after a resume.',
    ],
    danger: true,
  },
  resume: { title: 'Resume', says: () => [`All stages go on where they stopped.${flowing()}`] },
  drain: {
    title: 'Drain',
    says: () => [
      `Nothing more is taken from the source, what is in flight is finished, then all are paused. Use it before an upgrade.${flowing()}`,
      'It can be cancelled while it is under way. Resume lets the pipeline go on.',
    ],
    danger: true,
  },
};

function act(verb) {
  const { title, says, danger } = ACTIONS[verb];
  return ask({
    title: `${title} ${app.name}`,
    says: says(),
    fields: [WHY],
    confirm: title,
    danger,
    send: async ({ why }) => begun(await post(ours(`/${verb}`), { why })),
  });
}

function begun(job) {
  if (!job) return;
  emit('job', job);
  emit('changed');
  notice(`Job ${job.id}, ${job.kind}, has begun`);
}

/** The settings that may change while events are in flight, as they are now. */
function settings() {
  const { algorithm, memory, order } = app.pipeline.pipeline;
  return { algorithm, memory, order: typeof order === 'string' ? order : order?.by ?? 'none' };
}

function change() {
  const now = settings();
  const changed = ({ algorithm, memory }) => {
    const found = {};
    if (algorithm !== now.algorithm) found.algorithm = algorithm;
    if (memory && memory !== bytes(now.memory)) found.memory = memory.replaceAll(' ', '');
    return found;
  };
  return ask({
    title: `Change ${app.name}`,
    says: ['Each process takes the new settings between two steps and runs itself anew in its own place. Nothing is lost or repeated. The caches are filled again, so hits are fewer for a while.'],
    fields: [
      { name: 'algorithm', label: 'Algorithm', options: ALGORITHMS.includes(now.algorithm) ? ALGORITHMS : [now.algorithm, ...ALGORITHMS], value: now.algorithm, hint: 'auto runs whichever its measured cost model ranks first' },
      { name: 'memory', label: 'Memory a node', value: bytes(now.memory), required: true, hint: 'with its unit: 64 MiB' },
      WHY,
    ],
    watch: (values) => {
      const found = Object.entries(changed(values));
      return found.length ? found.map(([name, value]) => `${name}: ${name === 'memory' ? bytes(now.memory) : now[name]} → ${value}`) : ['Nothing is changed so far.'];
    },
    confirm: 'Change it',
    danger: true,
    send: async (values) => {
      const sent = { settings: changed(values), why: values.why, from_revision: app.pipeline.revision };
      if (!Object.keys(sent.settings).length) throw new Error('Nothing is changed: choose another algorithm or amount of memory.');
      const done = await call('PATCH', ours(), sent);
      begun(done.job);
      if (!done.job) notice(done.changes.length ? `Revision ${done.revision}` : 'Nothing changed');
    },
  });
}

const stoppedStates = ['paused', 'drained', 'draining', 'stopped'];

function show() {
  const state = app.pipeline?.state ?? app.stats?.state;
  const stopped = stoppedStates.includes(app.stats?.state ?? state);
  byId('pause').hidden = stopped;
  byId('drain').hidden = stopped;
  byId('resume').hidden = !stopped;
  for (const id of ['pause', 'drain', 'resume', 'change']) {
    byId(id).disabled = !app.pipeline || !may('operate');
    attribute(byId(id), 'title', may('operate') ? null : 'needs the role operate');
  }
}

export function mountActions() {
  for (const verb of Object.keys(ACTIONS)) byId(verb).addEventListener('click', () => act(verb));
  byId('change').addEventListener('click', change);
  for (const topic of ['stats', 'pipeline', 'me']) on(topic, show);
  show();
}

