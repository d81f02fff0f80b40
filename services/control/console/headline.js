// The figures that are looked at first, each with its last five minutes.

import { on } from './app.js';
import { Sparkline } from './charts.js';
import { attribute, byId, h, text } from './dom.js';
import { budget, held, isDown } from './figures.js';
import { bytes, count, rate, seconds, share, short } from './format.js';

const sum = (values) => values.reduce((all, value) => all + value, 0);

const TILES = [
  {
    name: 'In',
    of: (point) => point.in,
    value: ({ stats }) => rate(stats.rates?.in),
    more: ({ stats }) => `${short(stats.totals?.in)} in all`,
  },
  {
    name: 'Out',
    of: (point) => point.outputs,
    value: ({ stats }) => rate(stats.rates?.outputs),
    more: ({ stats }) => `${short(stats.totals?.outputs)} in all`,
  },
  {
    name: 'Cache hits',
    of: (point) => point.hit_rate,
    value: ({ point }) => share(point.hit_rate),
    more: ({ stats }) => `${share(stats.totals?.hit_rate)} in all`,
  },
  {
    name: 'Latency p99',
    of: (point) => point.latency?.p99 ?? null,
    value: ({ point }) => seconds(point.latency?.p99),
    more: ({ point }) => `p50 ${seconds(point.latency?.p50)}, p95 ${seconds(point.latency?.p95)}`,
  },
  {
    name: 'Waiting',
    of: (point) => (point.waiting == null ? null : point.waiting + (point.in_flight ?? 0)),
    value: ({ stats }) => short(stats.totals?.waiting),
    more: ({ stats }) => `${count(stats.totals?.in_flight)} in flight`,
  },
  {
    name: 'Memory',
    of: (point) => point.held,
    value: ({ phases }) => bytes(sum(phases.map(held))),
    more: ({ phases }) => `of ${bytes(sum(phases.map(budget)))}, ${share(sum(phases.map(held)) / sum(phases.map(budget)), 0)}`,
  },
  {
    name: 'Dead letters',
    of: (point) => point.dead,
    value: ({ stats }) => short(stats.totals?.dead_lettered),
    more: ({ stats }) => rate(stats.rates?.dead_lettered),
    kind: ({ stats }) => (stats.rates?.dead_lettered > 0 ? 'warn' : ''),
  },
];

export function mountHeadline(trail) {
  const tiles = TILES.map((tile) => {
    const value = h('dd', { class: 'value', text: '–' });
    const more = h('dd', { class: 'more', text: ' ' });
    const spark = new Sparkline();
    const node = h('div', { class: 'tile' }, h('dt', { text: tile.name }), value, more, h('dd', { class: 'trend' }, spark.node));
    return { ...tile, node, value, more, told: tile.value, tells: tile.more, spark };
  });
  byId('headline').replaceChildren(...tiles.map((tile) => tile.node));
  on('stats', (stats) => {
    const phases = stats.services.filter((one) => !isDown(one) && budget(one));
    const seen = { stats, phases, point: trail.last };
    for (const tile of tiles) {
      text(tile.value, tile.told(seen));
      text(tile.more, tile.tells(seen));
      attribute(tile.node, 'class', `tile ${tile.kind?.(seen) ?? ''}`.trim());
      tile.spark.show(trail.points, tile.of);
    }
  });
}
