// What the page knows, and who wants to hear of it.

import { get } from './api.js';
import { empty } from './dom.js';

const listeners = new Map();

export const app = {
  me: null, // who we are, with which role
  name: null, // of the pipeline that runs here
  pipeline: null, // GET P
  topology: null, // GET P/topology
  stats: null, // the last figures
  jobs: new Map(), // by id
};

/** The pipeline's own path. */
export const ours = (rest = '') => `v1/pipelines/${encodeURIComponent(app.name)}${rest}`;

export function on(topic, listener) {
  if (!listeners.has(topic)) listeners.set(topic, []);
  listeners.get(topic).push(listener);
}

export function emit(topic, value) {
  for (const listener of listeners.get(topic) ?? []) {
    try {
      listener(value);
    } catch (error) {
      console.error(topic, error); // one panel's trouble is not the others'
    }
  }
}

const ROLES = ['read', 'inspect', 'operate', 'admin']; // `send` may not look

export const may = (role) => ROLES.indexOf(app.me?.role) >= ROLES.indexOf(role);

/** Reads the pipeline's document and topology anew: after a change, and at the start. */
export async function refreshPipeline() {
  if (!app.name) {
    const all = await get('v1/pipelines');
    app.name = (all.find((one) => one.here) ?? all[0])?.name ?? null;
    if (!app.name) return;
  }
  [app.pipeline, app.topology] = await Promise.all([get(ours()), get(ours('/topology'))]);
  emit('pipeline', app.pipeline);
}

/**
 * Reads something again and again while its panel can be seen: `look` fetches and shows it. What goes wrong
 * is said in the panel's `.note`, and which role it takes to look. Gives a function that looks at once.
 */
export function poll(panel, everySeconds, look, role = 'read') {
  let seen = false;
  let under = false;
  let last = -Infinity;
  const note = panel.querySelector('.note');
  async function now() {
    if (under || !app.me || !app.name) return; // without a token each look would be refused
    last = performance.now();
    if (!may(role)) {
      if (note) empty(note, `To see this you need the role ${role}.`);
      return;
    }
    under = true;
    try {
      await look();
      if (note) empty(note, null);
    } catch (problem) {
      if (note && problem.status !== 401) empty(note, problem.message);
    }
    under = false;
  }
  const due = () => seen && !document.hidden && performance.now() - last >= everySeconds * 1000;
  new IntersectionObserver(([entry]) => {
    seen = entry.isIntersecting;
    if (due()) now();
  }, { rootMargin: '200px' }).observe(panel);
  setInterval(() => due() && now(), 250);
  on('pipeline', () => seen && now());
  return now;
}
