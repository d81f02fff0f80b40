// Who we are. Where the API is closed a token is asked for, and kept for this tab alone.

import { get, onRefused, token } from './api.js';
import { app, emit } from './app.js';
import { ask } from './dialog.js';
import { attribute, byId, text } from './dom.js';

let asking = false;

async function signIn(reason) {
  if (asking) return;
  asking = true;
  const had = token.get();
  token.clear();
  show();
  const done = await ask({
    title: 'A token is needed',
    says: [
      had ? `The token was refused: ${reason || 'it is unknown, expired or revoked'}.` : 'This API is closed. Give a token with the role read for figures, inspect to see keys and events too, operate to act.',
      'It is kept in this tab alone, until the tab is closed.',
    ],
    fields: [{ name: 'token', label: 'Token', type: 'password', required: true }],
    confirm: 'Sign in',
    send: async (values) => {
      token.set(values.token);
      try {
        app.me = await get('v1/me');
      } catch (problem) {
        token.clear();
        throw problem;
      }
    },
  });
  asking = false;
  show();
  if (done) emit('signed-in');
}

function show() {
  text(byId('who'), app.me ? `${app.me.name} · ${app.me.role}` : 'not signed in');
  byId('sign-out').hidden = !token.get();
  byId('sign-in').hidden = Boolean(app.me);
  attribute(byId('who'), 'class', app.me ? '' : 'muted');
}

/** Finds out who we are; asks for a token if need be. */
export async function whoAmI() {
  app.me = await get('v1/me');
  show();
  emit('me', app.me);
}

export function mountSession() {
  onRefused((reason) => {
    if (app.me && !asking) app.me = null;
    signIn(reason);
  });
  byId('sign-in').addEventListener('click', () => signIn(''));
  byId('sign-out').addEventListener('click', () => {
    token.clear();
    location.reload();
  });
  show();
}
