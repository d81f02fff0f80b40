// Dialogs: every action says what will happen before it happens. The browser's own <dialog> keeps the
// focus inside, closes by Escape, and gives the focus back.

import { empty, h } from './dom.js';

let number = 0;

function field(spec) {
  const id = `field-${++number}`;
  const common = { id, name: spec.name, required: spec.required, 'aria-describedby': spec.hint ? `${id}-hint` : null };
  let input;
  if (spec.options) {
    const options = spec.options.map((one) => h('option', { value: one.value ?? one, selected: (one.value ?? one) === spec.value, text: one.label ?? one }));
    input = h('select', common, ...options);
  } else {
    input = h('input', { ...common, type: spec.type ?? 'text', value: spec.value, placeholder: spec.placeholder, autocomplete: 'off', spellcheck: 'false' });
  }
  if (spec.type === 'checkbox') {
    return { input, node: h('div', { class: 'field check' }, input, h('label', { for: id, text: spec.label })) };
  }
  const hint = spec.hint ? h('small', { id: `${id}-hint`, text: spec.hint }) : null;
  return { input, node: h('div', { class: 'field' }, h('label', { for: id, text: spec.label }), input, hint) };
}

/**
 * Shows a dialog and resolves when it is closed: with what `send(values)` gave, or null if it was left.
 * What `send` throws is shown, and the dialog stays. `watch(values)` may say more as fields change.
 */
export function ask({ title, says = [], fields = [], confirm, danger = false, body = null, send, watch = null }) {
  return new Promise((resolve) => {
    const id = `dialog-${++number}`;
    const made = fields.map(field);
    const values = () => Object.fromEntries(made.map(({ input }) => [input.name, input.type === 'checkbox' ? input.checked : input.value.trim()]));
    const wrong = h('div', { class: 'wrong', role: 'alert', hidden: true });
    const more = h('div', { class: 'more', 'aria-live': 'polite' });
    const leave = h('button', { type: 'button', text: send ? 'Cancel' : 'Close', onclick: () => dialog.close() });
    const go = send ? h('button', { type: 'submit', class: danger ? 'primary danger' : 'primary', text: confirm }) : null;
    let result = null;
    const form = h(
      'form',
      { method: 'dialog', novalidate: false, onsubmit: submit, oninput: () => watch && tell() },
      h('h2', { id: `${id}-title`, text: title }),
      h('div', { class: 'says', id: `${id}-says` }, ...says.map((words) => h('p', { text: words })), body),
      ...made.map(({ node }) => node),
      more,
      wrong,
      h('div', { class: 'buttons' }, leave, go),
    );
    const dialog = h('dialog', { 'aria-labelledby': `${id}-title`, 'aria-describedby': `${id}-says` }, form);

    function tell() {
      more.replaceChildren(...watch(values()).map((words) => h('p', { text: words })));
    }

    async function submit(event) {
      event.preventDefault();
      if (!send) return dialog.close();
      go.disabled = true;
      empty(wrong, null);
      try {
        result = (await send(values())) ?? true;
        dialog.close();
      } catch (problem) {
        wrong.replaceChildren(
          h('b', { text: problem.title || 'It was not done' }),
          h('p', { text: problem.message }),
          h('ul', {}, ...(problem.problems ?? []).map((one) => h('li', { text: `${one.field ?? ''}: ${one.text}` }))),
        );
        wrong.hidden = false;
      }
      go.disabled = false;
      return undefined;
    }

    dialog.addEventListener('close', () => {
      dialog.remove();
      resolve(result);
    });
    document.body.append(dialog);
    if (watch) tell();
    dialog.showModal();
    (made[0]?.input ?? leave).focus();
  });
}
