// What the flow's drawing consists of, for each layout: boxes, and edges with their rates.

import { isDown, rateOf } from './figures.js';

const TITLES = { ingest: 'ingest', mapper: 'mapper', cache_phase: 'cache phase', disk_phase: 'disk phase', node: 'node', enrich: 'enrich on Spark' };

const per = (service, name) => (stats) => rateOf(stats, service, name);

/** Boxes {id, service, at: [along, across], kind, title, …} and edges {from, to, rated, words, …} of a topology. */
export function plan(topology, pipeline, stats) {
  const drawing = new Drawing(topology, pipeline);
  const fused = topology.stages.some((one) => one.kind === 'node');
  if (stats?.services.some((one) => one.service === 'enrich')) bySpark(drawing);
  else if (fused) byNodes(drawing);
  else byStages(drawing);
  return { boxes: drawing.boxes, edges: drawing.edges };
}

class Drawing {
  boxes = [];
  edges = [];

  constructor(topology, pipeline) {
    this.topology = topology;
    this.pipeline = pipeline;
    this.links = topology.links;
    this.box('source', 0, 0, 'topic', this.topic('source'), 'source');
  }

  topic(role) {
    return this.topology.topics.find((one) => one.role === role)?.name ?? role;
  }

  box(id, along, across, kind, title, more = '', service = id) {
    this.boxes.push({ id, at: [along, across], kind, title, more, service });
  }

  edge(from, to, words, rated, bend = 0, label = '') {
    this.edges.push({ from, to, words, rated, bend, label });
  }

  stage(kind, link, along, across) {
    const service = named(kind, link);
    this.box(service, along, across, 'stage', this.links > 1 ? `${TITLES[kind]} ${link}` : TITLES[kind]);
    return service;
  }

  /** The table of a link, and its rows on their way to who reads it. */
  table(link, along, across, reader) {
    const master = link === 1 ? this.pipeline?.master : this.pipeline?.then?.[link - 2]?.master;
    this.box(`table ${link}`, along, across, 'table', master?.table ?? 'master data', 'PostgreSQL');
    this.edge(`table ${link}`, reader, 'rows', grown(reader, 'rows_read'));
  }

  dead(along, across) {
    this.box('dead', along, across, 'side', 'dead letters', this.topic('dead-letter'));
  }

  shed(along, across) {
    this.box('shed', along, across, 'side', 'shed', this.topic('shed'));
  }

  /** Where it all goes, in the last column. */
  sinks(along, parks = true) {
    this.box('sink', along, 0, 'topic', this.topic('enriched'), 'sink');
    this.box('unmatched', along, 1, 'side', 'unmatched', this.topic('unmatched'));
    if (parks) this.box('parked', along, 2, 'side', 'parked', this.topic('parked'));
  }

  /** A rate summed up over the links of a kind of stage. */
  all(kind, outcome) {
    const services = this.topology.stages.filter((one) => one.kind === kind).map((one) => one.service);
    return (stats) => sum(services.map((service) => rateOf(stats, service, outcome)));
  }
}

function bySpark(drawing) {
  drawing.box('enrich', 1, 0, 'stage', TITLES.enrich);
  drawing.dead(1, 1);
  drawing.sinks(2, false);
  drawing.edge('source', 'enrich', '', per('enrich', 'in'));
  drawing.edge('enrich', 'dead', '', per('enrich', 'dead.'));
  drawing.edge('enrich', 'sink', '', per('enrich', 'outputs'));
  drawing.edge('enrich', 'unmatched', '', per('enrich', 'unmatched'));
}

/** One box for each table's nodes; of several nodes, one before them for what each takes of the source. */
function byNodes(drawing) {
  const hop = drawing.topology.stages.some((one) => one.kind === 'intake');
  const end = drawing.links + (hop ? 2 : 1);
  const first = named('node', 1);
  if (hop) {
    drawing.box('intake', 1, 0, 'stage', 'intake', '', first);
    drawing.edge('source', 'intake', '', per(first, 'in'));
    drawing.edge('intake', first, '', per(first, 'mapped'));
    drawing.dead(1, 1);
    drawing.edge('intake', 'dead', '', per(first, 'dead.'));
  } else {
    drawing.edge('source', first, '', per(first, 'in'));
    drawing.dead(end, 3);
    drawing.edge(first, 'dead', '', per(first, 'dead.'), 0, 'end');
  }
  if (drawing.pipeline?.overload) {
    drawing.shed(end, hop ? 3 : 4);
    drawing.edge(first, 'shed', '', per(first, 'shed.'), 0, 'end');
  }
  for (let link = 1; link <= drawing.links; link += 1) {
    const along = link + (hop ? 1 : 0);
    const node = drawing.stage('node', link, along, 0);
    drawing.table(link, along, 1, node);
    drawing.edge(node, link === drawing.links ? 'sink' : named('node', link + 1), '', per(node, 'outputs'));
  }
  const last = named('node', drawing.links);
  drawing.sinks(end);
  drawing.edge(last, 'unmatched', '', drawing.all('node', 'unmatched'), 0, 'end');
  drawing.edge(last, 'parked', '', drawing.all('node', 'parked'), 0, 'end');
}

function byStages(drawing) {
  drawing.box('ingest', 1, 0, 'stage', TITLES.ingest);
  drawing.box('mapper', 2, 0, 'stage', TITLES.mapper);
  drawing.dead(1, 1);
  drawing.shed(2, 1);
  drawing.edge('source', 'ingest', '', per('ingest', 'in'));
  drawing.edge('ingest', 'mapper', '', per('ingest', 'clean'));
  drawing.edge('ingest', 'dead', '', per('ingest', 'dead.'));
  drawing.edge('mapper', 'shed', '', per('mapper', 'shed.'));
  drawing.edge('mapper', 'cache_phase', '', per('mapper', 'mapped'));
  for (let link = 1; link <= drawing.links; link += 1) {
    const last = link === drawing.links;
    const cache = drawing.stage('cache_phase', link, 2 + link, 0);
    const disk = drawing.stage('disk_phase', link, 2 + link, 1);
    const next = last ? 'sink' : named('cache_phase', link + 1);
    drawing.edge(cache, next, 'hits', per(cache, 'outputs'));
    drawing.edge(disk, next, '', per(disk, 'outputs'), -1);
    drawing.edge(cache, disk, 'miss', per(cache, 'missed'), -1);
    drawing.edge(disk, cache, 'keys', grown(disk, 'migrations'), 1);
    drawing.table(link, 2 + link, 2, disk);
    if (last) {
      drawing.edge(cache, 'unmatched', '', drawing.all('cache_phase', 'unmatched'), -1);
      drawing.edge(disk, 'unmatched', '', drawing.all('disk_phase', 'unmatched'), 0, 'below');
      drawing.edge(disk, 'parked', '', drawing.all('disk_phase', 'parked'), 0, 'end');
    }
  }
  drawing.sinks(3 + drawing.links);
}

const named = (kind, link) => (link > 1 ? `${kind}.${link}` : kind);
const sum = (values) => values.reduce((all, value) => all + value, 0);

/** A rate told from a figure that only grows, between two messages. */
function grown(service, figure) {
  const before = new Map();
  let shown = null;
  let at = 0;
  return (stats) => {
    const now = Date.now();
    const own = stats.services.filter((one) => one.service === service && !isDown(one));
    if (!own.some((one) => figure in (one.figures ?? {}))) return null;
    let more = 0;
    for (const one of own) {
      const key = `${one.node} ${one.pid}`;
      const value = one.figures?.[figure] ?? 0;
      if (before.has(key)) more += Math.max(0, value - before.get(key));
      before.set(key, value);
    }
    if (at && now > at) {
      const told = (1000 * more) / (now - at);
      shown = shown === null ? told : shown + 0.3 * (told - shown);
    }
    at = now;
    return shown;
  };
}
