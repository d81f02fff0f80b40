// What somebody should look at now, read out as it appears: gone processes, a sum that is off, old figures.

import { on } from './app.js';
import { attribute, byId, h, keyed, text } from './dom.js';
import { budget, held, isDown, named } from './figures.js';
import { bytes, seconds, time } from './format.js';

let stats = null;
let stale = null;

function* found() {
  if (stale) {
    yield { id: 'stale', level: 'bad', to: '#live', words: stale.since ? `Figures are stale since ${time(stale.since)}: ${stale.reason}` : `No figures yet: ${stale.reason}` };
  }
  if (!stats) return;
  for (const problem of stats.totals?.problems ?? []) {
    yield { id: `sum ${problem}`, level: 'bad', to: '#conservation', words: `Conservation is off: ${problem}` };
  }
  for (const process of stats.services) {
    const name = named(process);
    if (process.state === 'gone') {
      yield { id: `${name} gone`, level: 'bad', to: '#processes', words: `${name} is gone`, more: `not heard of for ${seconds(Math.round(process.heard_s ?? 0))}` };
    } else if (process.state === 'failed') {
      yield { id: `${name} failed`, level: 'bad', to: '#processes', words: `${name} has failed`, more: process.reason };
    } else if (process.figures?.alarm) {
      yield { id: `${name} alarm`, level: 'warn', to: '#processes', words: `${name}: ${process.reason || 'it says that somebody should look'}` };
    } else if (process.state !== 'ready' && process.reason) {
      yield { id: `${name} reason`, level: 'warn', to: '#processes', words: `${name} is ${process.state}: ${process.reason}` };
    }
    if (!isDown(process) && budget(process) && held(process) > budget(process)) {
      yield { id: `${name} budget`, level: 'bad', to: '#memory', words: `${name} holds ${bytes(held(process))}, more than its budget of ${bytes(budget(process))}` };
    }
  }
}

function make({ to }) {
  const words = h('span');
  const more = h('small');
  return { node: h('li', {}, h('a', { href: to }, words, ' ', more)), words, more };
}

function show() {
  const all = [...found()];
  keyed(byId('alarms'), all, (one) => one.id, make, ({ node, words, more }, one) => {
    attribute(node, 'class', one.level);
    text(words, one.words);
    text(more, one.more ?? '');
  });
  document.title = `${all.length ? `(${all.length}) ` : ''}${stats?.pipeline ?? 'Dovetail'} · Dovetail`;
}

export function mountAlarms() {
  on('stats', (seen) => {
    stats = seen;
    show();
  });
  on('stale', (seen) => {
    stale = seen;
    show();
  });
}
