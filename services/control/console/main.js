// The console: signs in, follows the live stream, and hands what comes to the panels.

import { get } from './api.js';
import { mountActions } from './actions.js';
import { mountAlarms } from './alarms.js';
import { mountAlgorithm } from './algorithm.js';
import { app, emit, on, refreshPipeline } from './app.js';
import { mountCache } from './cache.js';
import { mountConservation } from './conservation.js';
import { attribute, byId, text } from './dom.js';
import { Trail } from './figures.js';
import { mountFlow } from './flow.js';
import { time } from './format.js';
import { mountHeadline } from './headline.js';
import { mountJobs } from './jobs.js';
import { mountLatency } from './latency.js';
import { mountLetters } from './letters.js';
import { follow } from './live.js';
import { mountProcesses, showBadge } from './processes.js';
import { mountSession, whoAmI } from './session.js';
import { mountSpark } from './spark.js';

const STALE_MS = 4000;
const RETRY_MS = 3000;

const trail = new Trail();
let stream = null;
let heard = null;
let trouble = 'waiting for the control service';

function hear(event, data) {
  if (event === 'job') emit('job', data);
  if (event !== 'stats') return;
  heard = Date.now();
  trouble = 'the control service says nothing; is it running?';
  app.stats = data;
  trail.add(data, heard);
  emit('stats', data);
  look();
}

function lost(problem) {
  trouble = problem && problem.name !== 'AbortError' ? problem.message : 'the stream of figures ended; trying again';
}

/** Says whether what is shown is now, or since when it is not. */
function look() {
  const stale = heard === null || Date.now() - heard > STALE_MS;
  const was = document.body.classList.contains('stale');
  document.body.classList.toggle('stale', stale);
  const live = byId('live');
  text(live, stale ? (heard ? `stale since ${time(heard)}` : 'no figures yet') : 'live');
  attribute(live, 'class', `badge ${stale ? 'bad' : 'good'}`);
  if (stale !== was || stale) emit('stale', stale && app.me ? { since: heard, reason: trouble } : null);
}

function describe() {
  text(byId('name'), app.name ?? 'no pipeline');
  if (!app.pipeline) return;
  text(byId('revision'), `revision ${app.pipeline.revision}`);
  attribute(byId('revision'), 'title', [app.pipeline.changed_by && `by ${app.pipeline.changed_by}`, app.pipeline.why].filter(Boolean).join(': ') || null);
}

async function begin() {
  stream?.abort();
  stream = new AbortController();
  const { signal } = stream;
  try {
    await whoAmI();
    await refreshPipeline();
  } catch (problem) {
    lost(problem);
    if (problem.status !== 401) setTimeout(() => signal.aborted || begin(), RETRY_MS);
    return;
  }
  get('v1/stats/history?seconds=900&step=10&figure=in&figure=outputs&figure=dead_lettered&figure=waiting&figure=in_flight').then((history) => trail.begin(history)).catch(() => {}); // lines begin empty then
  await follow('v1/events/live', hear, lost, signal);
}

on('pipeline', describe);
on('stats', ({ state }) => {
  showBadge(byId('state'), state ?? 'unknown');
  if (app.pipeline && state !== app.pipeline.state) app.pipeline.state = state;
});
on('signed-in', begin);

mountSession();
mountAlarms();
mountHeadline(trail);
mountFlow();
mountConservation();
mountProcesses();
mountAlgorithm();
mountCache();
mountLatency(trail);
mountLetters();
mountJobs();
mountSpark();
mountActions();
setInterval(look, 500);
begin();
