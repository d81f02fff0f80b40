// Dead letters and parked events: by reason, one by one, and back into the source after a fix.

import { get, post } from './api.js';
import { app, may, on, ours, poll } from './app.js';
import { ask } from './dialog.js';
import { attribute, byId, cells, empty, h, keyed, text, width } from './dom.js';
import { bytes, count, plural, time } from './format.js';
import { notice } from './notices.js';

const PAGE = 12;
const NAMES = { 'dead-letters': ['dead letter', 'dead letters'], parked: ['parked event', 'parked events'] };

const REPLAYED = 'Its bytes go back to the source as a new event, which is validated and joined like any other. If what was wrong is still wrong, it comes back here.';

export function mountLetters() {
  const panel = byId('letters');
  const form = panel.querySelector('form');
  const body = panel.querySelector('.letters tbody');
  const reasons = panel.querySelector('.reasons');
  const [nothing, shown, older, newest, many] = ['.nothing', '.shown', '.older', '.newest', '.replay-many'].map((one) => panel.querySelector(one));
  let page = { letters: [], next: null, total: 0 };
  let before = null;

  const kind = () => form.elements.kind.value;

  const look = poll(panel, 3, async () => {
    const asked = new URLSearchParams({ most: PAGE });
    for (const name of ['reason', 'origin']) if (form.elements[name].value.trim()) asked.set(name, form.elements[name].value.trim());
    if (before !== null) asked.set('before', before);
    page = await get(ours(`/${kind()}?${asked}`));
    keyed(body, page.letters, (one) => `${kind()} ${one.id}`, () => letterRow(inspect), fillLetter);
    empty(nothing, page.letters.length ? null : emptyWords(form));
    text(shown, page.letters.length ? `${count(page.letters.length)} shown of ${plural(page.total, ...NAMES[kind()])}` : '');
    older.disabled = page.next === null;
    newest.disabled = before === null;
    many.disabled = !may('operate') || page.letters.length === 0;
  }, 'inspect');

  const again = () => {
    before = null;
    look();
  };
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    again();
  });
  form.addEventListener('change', again);
  older.addEventListener('click', () => {
    before = page.next;
    look();
  });
  newest.addEventListener('click', again);

  async function inspect(id) {
    const letter = await get(ours(`/${kind()}/${id}`));
    const facts = [
      ['reason', letter.reason],
      ['detail', letter.detail || '–'],
      ['origin', letter.origin],
      ['at', time(letter.at)],
      ['size', bytes(letter.bytes)],
      ['replayed', letter.replayed ? `${time(letter.replayed.at)} by ${letter.replayed.by} to ${letter.replayed.to}` : 'no'],
    ];
    const shownText = letter.text ?? `not UTF-8; in base64:\n${letter.base64}`;
    const content = h(
      'div',
      {},
      h('dl', { class: 'pairs' }, ...facts.flatMap(([name, value]) => [h('dt', { text: name }), h('dd', { text: value })])),
      h('pre', { class: 'event', tabindex: 0, 'aria-label': 'the event, byte for byte', text: shownText === '' ? '(empty)' : shownText }),
      h('p', { text: may('operate') ? REPLAYED : 'To replay it you need the role operate.' }),
    );
    const fields = [{ name: 'why', label: 'Why (kept with your name)', placeholder: 'what was fixed' }];
    if (letter.replayed) fields.push({ name: 'force', type: 'checkbox', label: 'replay it although it was replayed before: its outputs come twice' });
    await ask({
      title: `${NAMES[kind()][0]} ${letter.id}`.replace(/^./, (first) => first.toUpperCase()),
      body: content,
      fields: may('operate') ? fields : [],
      confirm: 'Replay it',
      send: may('operate')
        ? async ({ why, force = false }) => {
            const done = await post(ours(`/${kind()}/${id}/replay`), { why, force });
            notice(`Replayed ${done.origin} to ${done.to}`, 'good');
            look();
          }
        : undefined,
    });
  }

  many.addEventListener('click', () => {
    const reason = form.elements.reason.value || null;
    const origin = form.elements.origin.value.trim() || null;
    const chosen = [reason && `with the reason ${reason}`, origin && `whose origin begins with ${origin}`].filter(Boolean).join(' and ');
    ask({
      title: `Replay ${NAMES[kind()][1]}`,
      says: [
        `All ${NAMES[kind()][1]}${chosen ? ` ${chosen}` : ', whatever their reason'}, go back to the source as new events${chosen ? '' : ` (${count(page.total)} are there)`}. Those that were replayed before are left out.`,
        'They are validated and joined like any other. What is still wrong comes back here.',
      ],
      fields: [{ name: 'why', label: 'Why (kept with your name)', placeholder: 'what was fixed' }],
      confirm: 'Replay them',
      danger: true,
      send: ({ why }) => post(ours(`/${kind()}/replay`), { reason, origin, confirm: true, why }),
    });
  });

  on('stats', ({ totals }) => {
    const found = Object.entries(totals?.dead_by_reason ?? {}).sort(([, a], [, b]) => b - a);
    const most = Math.max(...found.map(([, number]) => number), 1);
    keyed(reasons, found, ([name]) => name, (item) => reasonRow(item, form, again), (made, [name, number]) => {
      text(made.name, name);
      text(made.told, count(number));
      width(made.bar, number / most);
    });
    const select = form.elements.reason;
    for (const [name] of found) {
      if (![...select.options].some((option) => option.value === name)) select.append(h('option', { value: name, text: name }));
    }
  });
}

const emptyWords = (form) => {
  if (form.elements.reason.value || form.elements.origin.value) return 'None that fits the filter.';
  return form.elements.kind.value === 'parked' ? 'Nothing is parked.' : `No dead letters${app.name ? ` of ${app.name}` : ''}. Good.`;
};

function reasonRow([reason], form, again) {
  const [name, bar, told] = [h('span', { class: 'name' }), h('span', { class: 'fill' }), h('span', { class: 'told' })];
  const pick = () => {
    form.elements.kind.value = 'dead-letters';
    form.elements.reason.value = reason;
    again();
  };
  const button = h('button', { type: 'button', class: 'bar-button', onclick: pick }, name, h('span', { class: 'track' }, bar), told);
  return { node: h('li', {}, button), name, bar, told };
}

function letterRow(inspect) {
  const columns = cells(6, [0, 4]);
  const button = h('button', { type: 'button', class: 'link', onclick: () => inspect(button.textContent).catch((problem) => notice(problem.message, 'bad')) });
  const name = h('th', { scope: 'row', class: 'number' }, button);
  columns[5].classList.add('preview');
  return { node: h('tr', {}, name, ...columns.slice(1), h('td')), button, columns };
}

function fillLetter({ node, button, columns }, letter) {
  text(button, letter.id);
  text(columns[1], time(letter.at));
  text(columns[2], letter.reason);
  attribute(columns[2], 'title', letter.detail || null);
  text(columns[3], letter.origin);
  text(columns[4], bytes(letter.bytes));
  text(columns[5], letter.preview);
  text(node.lastElementChild, letter.replayed ? `${time(letter.replayed.at)} by ${letter.replayed.by}` : '');
}
