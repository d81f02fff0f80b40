// Charts as SVG, drawn by hand: a line beside a figure, lines over time, stacked bars.

import { attribute, h, s, text } from './dom.js';

const MINUTE = 60_000;

/** A small line of one figure over the last minutes, without axes: the figure stands beside it. */
export class Sparkline {
  constructor(windowMs = 5 * MINUTE) {
    this.windowMs = windowMs;
    this.area = s('path', { class: 'spark-area' });
    this.line = s('path', { class: 'spark-line' });
    this.node = s('svg', { class: 'spark', viewBox: '0 0 100 24', preserveAspectRatio: 'none', 'aria-hidden': 'true' }, this.area, this.line);
  }

  show(points, of, now = Date.now()) {
    const seen = points.filter((point) => point.at >= now - this.windowMs && of(point) != null);
    const span = Math.max(MINUTE, now - (seen[0]?.at ?? now)); // all there is, while there is little
    const highest = Math.max(...seen.map(of), 1e-9);
    const places = seen.map((point) => [100 - ((now - point.at) / span) * 100, 22.5 - (of(point) / highest) * 21]);
    const line = places.map(([x, y], at) => `${at ? 'L' : 'M'}${x.toFixed(2)} ${y.toFixed(2)}`).join('');
    attribute(this.line, 'd', line || 'M0 0');
    const area = places.length ? `${line}L${places.at(-1)[0].toFixed(2)} 24L${places[0][0].toFixed(2)} 24Z` : 'M0 0';
    attribute(this.area, 'd', area);
  }
}

/** Round steps for an axis: 1, 2, 5 and their tens. */
export function steps(highest, most = 4) {
  const rough = highest / most || 1;
  const tens = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].find((one) => one * tens >= rough) * tens;
  const found = [];
  for (let at = 0; at <= highest * 1.001; at += step) found.push(at);
  return found;
}

/** How much time a chart shows: all there is, in steps that can be cut into three, up to a bound. */
const span = (points, now, most) => Math.min(most, Math.max(1, Math.ceil((now - (points[0]?.at ?? now)) / (3 * MINUTE))) * 3 * MINUTE);

/** Lines over time with axes. `series` are {name, kind, of}: kind picks the colour. */
export class TimeChart {
  constructor({ series, windowMs = 15 * MINUTE, format, label, height = 170 }) {
    Object.assign(this, { series, windowMs, format, height });
    this.grid = s('g', { class: 'grid' });
    this.lines = series.map((one) => s('path', { class: `line ${one.kind}` }));
    this.svg = s('svg', { class: 'chart', role: 'img', 'aria-label': label, height }, this.grid, ...this.lines);
    const legend = series.map((one) => h('li', {}, h('span', { class: `swatch ${one.kind}` }), one.name));
    this.node = h('figure', { class: 'figure' }, this.svg, h('ul', { class: 'legend' }, ...legend));
  }

  show(points, now = Date.now()) {
    const wide = this.svg.clientWidth || 600;
    const [left, right, top, bottom] = [58, 8, 8, 20];
    const windowMs = span(points, now, this.windowMs);
    const seen = points.filter((point) => point.at >= now - windowMs);
    const values = this.series.flatMap((one) => seen.map(one.of)).filter((value) => value != null);
    const marks = steps(Math.max(...values, 1e-3));
    const highest = Math.max(marks.at(-1), ...values, 1e-3);
    const x = (at) => wide - right - ((now - at) / windowMs) * (wide - left - right);
    const y = (value) => this.height - bottom - (value / highest) * (this.height - top - bottom);
    attribute(this.svg, 'viewBox', `0 0 ${wide} ${this.height}`);
    const minutes = windowMs / MINUTE;
    const across = marks.flatMap((mark) => [
      s('line', { x1: left, x2: wide - right, y1: y(mark), y2: y(mark) }),
      s('text', { x: left - 6, y: y(mark) + 4, 'text-anchor': 'end', text: this.format(mark) }),
    ]);
    const along = [0, 1, 2, 3].map((third) => {
      const back = (minutes * (3 - third)) / 3;
      const words = back === 0 ? 'now' : `−${back} min`;
      return s('text', { x: x(now - back * MINUTE), y: this.height - 4, 'text-anchor': third === 3 ? 'end' : third ? 'middle' : 'start', text: words });
    });
    this.grid.replaceChildren(...across, ...along);
    this.series.forEach((one, at) => {
      let pen = 'M';
      let path = '';
      let last = null;
      for (const point of seen) {
        const value = one.of(point);
        if (value == null || (last && point.at - last > 45_000)) pen = 'M';
        if (value != null) {
          path += `${pen}${x(point.at).toFixed(1)} ${y(value).toFixed(1)}`;
          pen = 'L';
          last = point.at;
        }
      }
      attribute(this.lines[at], 'd', path || 'M0 0');
    });
  }
}

/** Parts of a whole beside each other; `whole` may be more than the sum. */
export class StackedBar {
  constructor(label) {
    this.label = label;
    this.node = h('div', { class: 'stack', role: 'img' });
  }

  /** `parts` are {name, value, kind, told}: kind picks the colour, told is the value in words. */
  show(parts, whole) {
    const all = whole || parts.reduce((sum, part) => sum + part.value, 0) || 1;
    const shown = parts.filter((part) => part.value > 0);
    while (this.node.children.length > shown.length) this.node.lastElementChild.remove();
    while (this.node.children.length < shown.length) this.node.append(h('span'));
    shown.forEach((part, at) => {
      const piece = this.node.children[at];
      attribute(piece, 'class', part.kind);
      attribute(piece, 'title', `${part.name} ${part.told}`);
      piece.style.setProperty('width', `${(100 * part.value) / all}%`);
    });
    attribute(this.node, 'aria-label', `${this.label}: ${shown.map((part) => `${part.name} ${part.told}`).join(', ') || 'nothing'}`);
  }
}

/** A legend beside a stacked bar, with figures. */
export function showLegend(list, parts) {
  while (list.children.length > parts.length) list.lastElementChild.remove();
  while (list.children.length < parts.length) list.append(h('li', {}, h('span', { class: 'swatch' }), h('span'), h('b')));
  parts.forEach((part, at) => {
    const [swatch, name, value] = list.children[at].children;
    attribute(swatch, 'class', `swatch ${part.kind}`);
    text(name, part.name);
    text(value, part.told);
  });
}
