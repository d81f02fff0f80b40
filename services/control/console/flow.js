// The pipeline as the data flows: stages and topics on a grid, rates on the edges. It lies on a wide page
// and stands on a narrow one: the grid's columns and rows change places.

import { app, on } from './app.js';
import { attribute, byId, s, text } from './dom.js';
import { isDown, lagOf } from './figures.js';
import { rate, short } from './format.js';
import { plan } from './plan.js';

// Boxes, the distance from one to the next along the flow and across it, and room before the sinks.
const LYING = { box: [150, 58], along: 250, across: 112, last: 64 };
const STANDING = { box: [100, 58], along: 112, across: 118, last: 38 };

class Flow {
  constructor(svg) {
    this.svg = svg;
    this.key = '';
    new ResizeObserver(() => this.draw()).observe(svg.parentElement);
  }

  draw() {
    if (!app.topology) return;
    const standing = this.svg.parentElement.clientWidth < 900;
    const spark = app.stats?.services.some((one) => one.service === 'enrich');
    const key = JSON.stringify([standing, spark, app.topology, app.pipeline?.pipeline?.master?.table]);
    if (key === this.key) return;
    this.key = key;
    const { boxes, edges } = plan(app.topology, app.pipeline?.pipeline, app.stats);
    const { box: [wide, high], ...step } = standing ? STANDING : LYING;
    const end = Math.max(...boxes.map((box) => box.at[0]));
    const place = ([along, across]) => {
      const [far, aside] = [along * step.along + (along === end ? step.last : 0), across * step.across];
      return standing ? [aside, far] : [far, aside];
    };
    const at = new Map(boxes.map((box) => [box.id, place(box.at)]));
    const far = (axis) => Math.max(...[...at.values()].map((one) => one[axis]));
    attribute(this.svg, 'viewBox', `-2 -2 ${far(0) + wide + 4} ${far(1) + high + 4}`);
    attribute(this.svg, 'class', standing ? 'flow standing' : 'flow');
    this.boxes = boxes.map((box) => drawBox(box, at.get(box.id), wide, high));
    this.edges = edges.map((edge) => drawEdge(edge, at.get(edge.from), at.get(edge.to), wide, high));
    const arrow = s('marker', { id: 'arrow', viewBox: '0 0 8 8', refX: 2, refY: 4, markerWidth: 8, markerHeight: 8, orient: 'auto', markerUnits: 'userSpaceOnUse' }, s('path', { d: 'M0 0L8 4L0 8Z' }));
    this.svg.replaceChildren(
      s('defs', {}, arrow),
      s('g', {}, ...this.edges.map((edge) => edge.lines)),
      s('g', {}, ...this.boxes.map((box) => box.node)),
      s('g', {}, ...this.edges.map((edge) => edge.label)),
    );
    if (app.stats) this.show(app.stats);
  }

  show(stats) {
    if (!this.boxes) return this.draw();
    for (const edge of this.edges) {
      const value = edge.rated(stats);
      const told = value === null ? '' : rate(value);
      text(edge.words, [edge.name, told].filter(Boolean).join(' '));
      const flows = value > 0.05;
      attribute(edge.moving, 'class', flows ? `moving ${value > 5000 ? 'fast' : value > 100 ? 'steady' : 'slow'}` : 'moving still');
      edge.moving.style.setProperty('stroke-width', flows ? String(1.5 + Math.min(3.5, Math.log10(1 + value) * 0.7)) : '1');
      attribute(edge.label, 'class', flows ? 'rate' : 'rate still');
    }
    for (const box of this.boxes) box.show(stats);
    attribute(this.svg, 'aria-label', this.#described(stats));
    return undefined;
  }

  #described(stats) {
    const told = this.edges.map((edge) => `${edge.from} to ${edge.to} ${edge.words.textContent || '0/s'}`);
    return `Data flow of ${stats.pipeline}: ${told.join('; ')}`;
  }
}

function drawBox(box, [x, y], wide, high) {
  const title = s('text', { class: 'title', x: 12, y: 24, text: clipped(box.title, wide) });
  const more = s('text', { class: 'more', x: 12, y: 42, text: box.kind === 'stage' ? '' : clipped(box.more, wide) });
  const dots = s('g', {});
  const node = s('g', { class: `box ${box.kind}`, transform: `translate(${x} ${y})` },
    s('rect', { width: wide, height: high, rx: box.kind === 'stage' ? 8 : high / 2 - 14 }), title, more, dots,
    s('title', { text: box.kind === 'stage' ? box.title : `${box.title} ${box.more}` }));
  if (box.kind === 'table') attribute(node.firstElementChild, 'rx', 4);
  return {
    node,
    show(stats) {
      if (box.kind !== 'stage') return;
      const own = stats.services.filter((one) => one.service === box.service);
      const up = own.filter((one) => !isDown(one));
      const waits = lagOf(stats, box.service);
      const down = own.length - up.length;
      const state = down ? 'down' : own.some((one) => one.state !== 'ready') ? 'waiting' : own.length ? 'up' : 'unknown';
      attribute(node, 'class', `box stage ${state}`);
      text(more, down ? `${down} of ${own.length} gone` : own.length ? (own.every((one) => one.state === 'paused') ? 'paused' : `lag ${short(waits)}`) : 'not heard of');
      if (dots.children.length !== own.length) {
        dots.replaceChildren(...own.map((_, at) => s('circle', { cx: wide - 12 - 11 * (own.length - 1 - at), cy: high - 20, r: 4 })));
      }
      own.forEach((one, at) => attribute(dots.children[at], 'class', `dot ${one.state}`));
    },
  };
}

const clipped = (words, wide) => (words.length > (wide - 16) / 6.9 ? `${words.slice(0, Math.floor((wide - 24) / 6.9))}…` : words);

function drawEdge(edge, [fx, fy], [tx, ty], wide, high) {
  const [dx, dy] = [tx - fx, ty - fy];
  const lying = wide > 120;
  const shift = edge.bend * 26;
  let start;
  let stop;
  let path;
  let label;
  if (dx === 0) { // above each other
    const down = dy > 0;
    const x = fx + wide / 2 + (edge.bend ? -shift : 0);
    start = [x, fy + (down ? high : 0)];
    stop = [x, ty + (down ? -6 : high + 6)];
    path = `M${start}L${stop}`;
    const y = edge.label === 'below' ? start[1] + 16 : (start[1] + stop[1]) / 2 + 4;
    label = [x + (edge.bend > 0 ? -7 : 7), y, edge.bend > 0 ? 'end' : 'start'];
  } else if (dy === 0) { // beside each other
    const right = dx > 0;
    const y = fy + high / 2 + (lying ? 0 : shift * 0.5);
    start = [fx + (right ? wide : 0), y];
    stop = [tx + (right ? -6 : wide + 6), y];
    path = `M${start}L${stop}`;
    const x = (start[0] + stop[0]) / 2;
    if (lying) label = edge.label === 'below' ? [x + 12, y + 17, 'middle'] : [x, y - 9, 'middle'];
    else label = edge.bend > 0 ? [x, fy + high + 13, 'middle'] : [x, fy - 7, 'middle'];
  } else if (lying) { // across
    start = [fx + wide, fy + high / 2 + (dy > 0 ? 15 : -15)];
    stop = [tx - 6, ty + high / 2 + (dy > 0 ? -15 : 15)];
    const mid = (start[0] + stop[0]) / 2;
    path = `M${start}C${mid} ${start[1]} ${mid} ${stop[1]} ${stop}`;
    label = edge.label === 'end' ? [stop[0] - 8, stop[1] - 9, 'end'] : [start[0] + 6, start[1] + (dy > 0 ? 17 : -9), 'start'];
  } else {
    start = [fx + wide / 2 + (dx > 0 ? 24 : -24), fy + high];
    stop = [tx + wide / 2 + (dx > 0 ? -24 : 24), ty - 6];
    const mid = (start[1] + stop[1]) / 2;
    path = `M${start}C${start[0]} ${mid} ${stop[0]} ${mid} ${stop}`;
    if (edge.label === 'end') label = [stop[0] - 5, stop[1] - 6, 'end'];
    else label = dx > 0 ? [stop[0] - 3, stop[1] - 19, 'end'] : [stop[0] + 5, stop[1] - 4, 'start'];
  }
  const words = s('text', { x: label[0], y: label[1], 'text-anchor': label[2] });
  const moving = s('path', { class: 'moving still', d: path });
  return {
    ...edge,
    name: edge.words,
    words,
    moving,
    lines: s('g', { class: 'edge' }, s('path', { class: 'bed', d: path, 'marker-end': 'url(#arrow)' }), moving),
    label: s('g', { class: 'rate still' }, words),
  };
}

export function mountFlow() {
  const svg = byId('flow-drawing');
  const flow = new Flow(svg);
  on('pipeline', () => flow.draw());
  on('stats', (stats) => {
    flow.draw();
    flow.show(stats);
  });
}
