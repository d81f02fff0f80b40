// How long an event takes, from the source record's timestamp to its output; and rates over time.

import { on } from './app.js';
import { TimeChart } from './charts.js';
import { byId, cells, empty, h, keyed, text } from './dom.js';
import { QUANTILES } from './figures.js';
import { count, seconds, short } from './format.js';

const ROWS = [['all', ''], ['by cache', 'cache_phase'], ['by disk phase', 'disk_phase']];

export function mountLatency(trail) {
  const panel = byId('latency');
  const chart = new TimeChart({
    label: 'Latency percentiles of the last 15 minutes',
    format: seconds,
    series: QUANTILES.map(([name], at) => ({ name, kind: ['k1', 'k2', 'k3'][at], of: (point) => point.latency?.[name] ?? null })),
  });
  panel.querySelector('.drawing').replaceChildren(chart.node);
  const body = panel.querySelector('tbody');
  const rates = byId('rates');
  const through = new TimeChart({
    label: 'Events in and outputs a second, last 15 minutes',
    format: short,
    series: [
      { name: 'in, events/s', kind: 'k1', of: (point) => point.in },
      { name: 'out, messages/s', kind: 'k2', of: (point) => point.outputs },
    ],
  });
  const waiting = new TimeChart({
    label: 'Events waiting and in flight, last 15 minutes',
    format: short,
    series: [
      { name: 'waiting at the source', kind: 'k3', of: (point) => point.waiting },
      { name: 'in flight', kind: 'k1', of: (point) => point.in_flight },
    ],
    height: 130,
  });
  rates.querySelector('.drawing').replaceChildren(through.node, waiting.node);
  on('stats', () => {
    const point = trail.last;
    chart.show(trail.points);
    through.show(trail.points);
    waiting.show(trail.points);
    empty(panel.querySelector('.note'), [...point.buckets.values()].some((one) => one.size) ? null : 'No answer has been given yet, so there is no latency to tell.');
    // A fused node, and Spark, answer from both in one step: there is one latency to tell.
    const apart = [...point.buckets.keys()].some((name) => name.startsWith('cache_phase'));
    keyed(body, apart ? ROWS : ROWS.slice(0, 1), ([name]) => name, make, ({ name, columns }, [title, kind]) => {
      const found = trail.latency(point, kind);
      text(name, title);
      QUANTILES.forEach(([quantile], at) => text(columns[at + 1], seconds(found?.[quantile])));
      text(columns[4], found ? count(found.events) : '–');
    });
  });
}

function make() {
  const columns = cells(5, [1, 2, 3, 4]);
  const name = h('th', { scope: 'row' });
  return { node: h('tr', {}, name, ...columns.slice(1)), name, columns };
}

