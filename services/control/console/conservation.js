// The conservation sum: where every event that came in is now, or has ended.

import { on } from './app.js';
import { StackedBar, showLegend } from './charts.js';
import { attribute, byId, empty, text } from './dom.js';
import { count, share } from './format.js';

const ENDS = [
  ['enriched', 'enriched', 'c1'],
  ['unmatched', 'unmatched', 'c2'],
  ['parked', 'parked', 'c4'],
  ['dead_lettered', 'dead letters', 'c5'],
  ['shed', 'shed', 'c6'],
  ['lost', 'lost', 'c8'],
  ['in_flight', 'in flight', 'c3'],
];

export function mountConservation() {
  const panel = byId('conservation');
  const bar = new StackedBar('events by what became of them');
  panel.querySelector('.bar').replaceChildren(bar.node);
  const [verdict, equation, legend, note] = ['.verdict', '.equation', '.legend', '.note'].map((one) => panel.querySelector(one));
  on('stats', ({ totals }) => {
    if (!totals) {
      empty(note, 'The ledgers have not been read yet.');
      return;
    }
    empty(note, null);
    const all = ENDS.reduce((sum, [name]) => sum + totals[name], 0);
    const parts = ENDS.map(([name, title, kind]) => ({
      name: title,
      value: totals[name],
      kind,
      told: `${count(totals[name])} · ${portion(totals[name], all)}`,
    }));
    bar.show(parts, all);
    showLegend(legend, parts);
    const off = totals.problems.length > 0;
    text(verdict, off ? 'is off' : 'holds');
    attribute(verdict, 'class', `verdict badge ${off ? 'bad' : 'good'}`);
    text(equation, totals.equation);
  });
}

const portion = (part, all) => (part > 0 && part < all / 1000 ? '< 0.1 %' : share(all ? part / all : 0));
