// The control service's API: one call, its errors, and the stream of events (docs/api.md).

const KEPT = 'dovetail.token';

/** What went wrong, as the service says it (RFC 9457), or as the browser does. */
export class Problem extends Error {
  constructor(status, body) {
    super(body.detail || body.title || `the service answered ${status}`);
    this.status = status;
    this.title = body.title ?? '';
    this.type = body.type ?? '';
    this.problems = body.problems ?? [];
  }
}

/** Kept for this tab alone, and only until it is closed. */
export const token = {
  get: () => sessionStorage.getItem(KEPT),
  set: (value) => sessionStorage.setItem(KEPT, value),
  clear: () => sessionStorage.removeItem(KEPT),
};

let refused = () => {};

/** Calls back when the API wants a token, or another one. */
export const onRefused = (callback) => {
  refused = callback;
};

async function request(method, path, { body, signal, accept = 'application/json' } = {}) {
  const headers = { Accept: accept };
  if (token.get()) headers.Authorization = `Bearer ${token.get()}`;
  if (body !== undefined) headers['Content-Type'] = 'application/json';
  const sent = body === undefined ? undefined : JSON.stringify(body);
  let answer;
  try {
    answer = await fetch(path, { method, headers, body: sent, signal, cache: 'no-store', credentials: 'omit' });
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw new Problem(0, { title: 'No answer', detail: 'the control service does not answer; is it running?' });
  }
  if (answer.ok) return answer;
  const told = await answer.json().catch(() => ({}));
  if (answer.status === 401) refused(told.detail ?? '');
  throw new Problem(answer.status, told);
}

export async function call(method, path, body, signal) {
  const answer = await request(method, path, { body, signal });
  return answer.status === 204 ? null : answer.json();
}

export const get = (path, signal) => call('GET', path, undefined, signal);
export const post = (path, body = {}) => call('POST', path, body);

/** Yields {event, data} of a stream as they come; ends when the service ends it. */
export async function* stream(path, signal) {
  const answer = await request('GET', path, { signal, accept: 'text/event-stream' });
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const blocks = (rest + value).replaceAll('\r\n', '\n').split('\n\n');
    rest = blocks.pop();
    for (const block of blocks) yield parsed(block);
  }
}

function parsed(block) {
  let event = 'message';
  const data = [];
  for (const line of block.split('\n')) {
    if (line.startsWith('event:')) event = line.slice(6).trim();
    else if (line.startsWith('data:')) data.push(line.slice(5).replace(/^ /, ''));
  }
  return data.length ? { event, data: JSON.parse(data.join('\n')) } : { event: 'comment', data: null };
}
