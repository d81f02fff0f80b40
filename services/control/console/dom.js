// Elements from data. Text is only ever text: events and keys are whatever anybody has sent.

const SVG = 'http://www.w3.org/2000/svg';

function fill(element, props, children) {
  for (const [name, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === 'text') element.textContent = value;
    else if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else if (name === 'style') for (const [key, set] of Object.entries(value)) element.style.setProperty(key, set);
    else element.setAttribute(name, value === true ? '' : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

export const h = (name, props = {}, ...children) => fill(document.createElement(name), props, children);

export const s = (name, props = {}, ...children) => fill(document.createElementNS(SVG, name), props, children);

export const byId = (id) => document.getElementById(id);

/** Sets a text, an attribute or a class only where it differs: what stands still is not drawn anew. */
export function text(element, value) {
  const wanted = String(value);
  if (element.textContent !== wanted) element.textContent = wanted;
  return element;
}

export function attribute(element, name, value) {
  if (value === null || value === false) element.removeAttribute(name);
  else if (element.getAttribute(name) !== String(value)) element.setAttribute(name, String(value));
  return element;
}

export const width = (element, share) =>
  element.style.setProperty('width', `${Math.max(0, Math.min(1, share || 0)) * 100}%`);

/**
 * Keeps one child of `parent` for each item, in their order: `make(item)` gives {node, …} for a new one,
 * `update(made, item)` fills it. Focus and selection stay where they are.
 */
export function keyed(parent, items, keyOf, make, update) {
  const before = parent.keyedRows ?? new Map();
  const now = new Map();
  let place = parent.firstElementChild;
  for (const item of items) {
    const key = String(keyOf(item));
    const made = before.get(key) ?? make(item);
    before.delete(key);
    now.set(key, made);
    update(made, item);
    if (made.node === place) place = place.nextElementSibling;
    else parent.insertBefore(made.node, place);
  }
  for (const { node } of before.values()) node.remove();
  parent.keyedRows = now;
}

/** A cell for each column: a number stands right. `columns` are names or {name, number}. */
export function cells(count, numbers = []) {
  return Array.from({ length: count }, (_, at) => h('td', { class: numbers.includes(at) ? 'number' : null }));
}

/** Says in place of figures why there are none. */
export function empty(element, words) {
  attribute(element, 'hidden', words ? null : '');
  text(element, words ?? '');
}
