// What is told of the last figures by adding them up: rates of stages, memory by part, latencies.

export const QUANTILES = [['p50', 0.5], ['p95', 0.95], ['p99', 0.99]];
const BUCKET = 'latency_le.'; // a figure each: events answered within so many seconds, so far
const PART = 'component_bytes.';
const KEPT_MS = 15 * 60 * 1000;
export const ANSWERED_MS = 60 * 1000; // latencies and shares are those of the last minute

/** The kind of a service: its name without its link. */
export const kindOf = (service) => service.split('.')[0];

export const linkOf = (service) => Number(service.split('.')[1] ?? 1);

export const isDown = (process) => process.state === 'gone' || process.state === 'failed';

export const named = (process) => `${process.service}-${process.node}`;

const sum = (values) => values.reduce((all, value) => all + (value ?? 0), 0);

/** Sum of a stage's rates, those of its running processes; `ends` with a dot for a family. */
export function rateOf(stats, service, name) {
  const rates = stats.services
    .filter((one) => one.service === service && !isDown(one))
    .flatMap((one) => Object.entries(one.rates ?? {}));
  const full = `events.${name}`;
  return sum(rates.filter(([key]) => (name.endsWith('.') ? key.startsWith(full) : key === full)).map(([, value]) => value));
}

export const lagOf = (stats, service) =>
  sum(stats.services.filter((one) => one.service === service && !isDown(one)).map((one) => one.lag ?? one.figures?.lag));

/** Bytes held by each part of a process; one part where it does not say which. */
export function parts(process) {
  const own = Object.entries(process.figures ?? {})
    .filter(([name, value]) => name.startsWith(PART) && value > 0)
    .map(([name, value]) => [name.slice(PART.length), value]);
  const held = process.held_bytes ?? process.figures?.held_bytes ?? 0;
  const told = sum(own.map(([, value]) => value));
  if (held - told > 0) own.push([own.length ? 'other' : kindOf(process.service).replace('_', ' '), held - told]);
  return own.sort(([, a], [, b]) => b - a);
}

export const budget = (process) => process.budget_bytes ?? process.figures?.budget_bytes ?? 0;

export const held = (process) => process.held_bytes ?? process.figures?.held_bytes ?? 0;

/** How many events a process has answered within each bound, so far. */
function buckets({ figures }) {
  const found = Object.entries(figures ?? {}).filter(([name]) => name.startsWith(BUCKET));
  const bound = (name) => (name.endsWith('.inf') ? Infinity : Number(name.slice(BUCKET.length)));
  return new Map(found.map(([name, value]) => [bound(name), value]));
}

/** What has been answered between two points, by all of these processes; one that began anew counts from 0. */
function answered(before, now) {
  const sums = new Map();
  for (const [name, counts] of now) {
    const then = before.get(name) ?? new Map();
    const anew = [...counts].some(([bound, value]) => value < (then.get(bound) ?? 0));
    for (const [bound, value] of counts) sums.set(bound, (sums.get(bound) ?? 0) + value - (anew ? 0 : then.get(bound) ?? 0));
  }
  return sums;
}

/** The quantiles of a cumulative histogram, by straight lines within a bucket. */
export function quantiles(sums) {
  const bounds = [...sums.keys()].sort((a, b) => a - b);
  const counts = bounds.map((bound) => sums.get(bound));
  const all = counts.at(-1) ?? 0;
  if (all <= 0) return null;
  const found = { events: all };
  for (const [name, share] of QUANTILES) {
    const wanted = share * all;
    const at = counts.findIndex((count) => count >= wanted);
    const [low, below] = at > 0 ? [bounds[at - 1], counts[at - 1]] : [0, 0];
    const high = bounds[at];
    found[name] = Number.isFinite(high) ? low + ((high - low) * (wanted - below)) / Math.max(1, counts[at] - below) : low;
  }
  return found;
}

const PHASES = ['cache_phase', 'disk_phase', 'node', 'enrich'];

/** The last quarter of an hour, a point for each message of the stream. */
export class Trail {
  points = [];

  add(stats, at = Date.now()) {
    const totals = stats.totals ?? {};
    const phases = stats.services.filter((one) => PHASES.includes(kindOf(one.service)));
    const caches = phases.filter((one) => kindOf(one.service) !== 'disk_phase');
    const point = {
      at,
      live: true,
      in: stats.rates?.in ?? null,
      outputs: stats.rates?.outputs ?? null,
      dead: stats.rates?.dead_lettered ?? null,
      dead_total: totals.dead_lettered ?? null,
      waiting: totals.waiting ?? null,
      in_flight: totals.in_flight ?? null,
      hits: sum(caches.map((one) => one.figures?.['events.hits'])),
      asked: sum(caches.map((one) => one.figures?.['events.in'])),
      held: sum(stats.services.filter((one) => !isDown(one)).map(held)),
      buckets: new Map(phases.map((one) => [named(one), buckets(one)])),
    };
    point.hit_rate = this.#hitRate(point);
    point.latency = this.latency(point);
    this.points.push(point);
    while (this.points[0].at < at - KEPT_MS) this.points.shift();
    return point;
  }

  /** The first of the live points since then: those of the service's history know neither hits nor latencies. */
  #since(then) {
    return this.points.find((one) => one.live && one.at >= then) ?? null;
  }

  /** Of the answers of the last minute, by all phases or by those of a kind; null before there are any. */
  latency(point, kind = '') {
    const before = this.#since(point.at - ANSWERED_MS);
    if (!before || before === point) return null;
    const own = new Map([...point.buckets].filter(([name]) => name.startsWith(kind)));
    return quantiles(answered(before.buckets, own));
  }

  #hitRate(point) {
    const before = this.#since(point.at - 10_000);
    if (!before || point.asked <= before.asked || point.hits < before.hits) return this.points.at(-1)?.hit_rate ?? null;
    return (point.hits - before.hits) / (point.asked - before.asked);
  }

  get last() {
    return this.points.at(-1) ?? null;
  }

  /** Puts what was kept by the service before what comes live. */
  begin(history) {
    const first = this.points[0]?.at ?? Infinity;
    const of = (figure) => history.series.find((one) => one.service === null && one.figure === figure)?.values ?? [];
    const taken = of('in');
    const outputs = of('outputs');
    const dead = of('dead_lettered');
    const rate = (values, at, seconds) =>
      values[at] != null && values[at - 1] != null ? Math.max(0, (values[at] - values[at - 1]) / seconds) : null;
    const earlier = history.at.map((text, at) => {
      const then = new Date(text).getTime();
      const since = (then - new Date(history.at[at - 1] ?? text).getTime()) / 1000 || history.step_s;
      return {
        at: then,
        live: false,
        in: rate(taken, at, since),
        outputs: rate(outputs, at, since),
        dead: rate(dead, at, since),
        waiting: of('waiting')[at] ?? null,
        in_flight: of('in_flight')[at] ?? null,
        hit_rate: null,
        held: null,
        latency: null,
        buckets: new Map(),
      };
    });
    const since = Date.now() - KEPT_MS;
    this.points.unshift(...earlier.filter((point) => point.at < first && point.at > since));
  }
}
