// Follows the live stream for as long as the page is open: comes back after every loss, later each time.

import { stream } from './api.js';

const SILENCE_MS = 8000; // a stream that says nothing for so long is taken for lost
const FIRST_PAUSE_MS = 500;
const LONGEST_PAUSE_MS = 10000;

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** `on(event, data)` for each event; `lost(problem)` whenever the stream ends. Returns when told to stop. */
export async function follow(path, on, lost, signal) {
  let failures = 0;
  while (!signal.aborted) {
    const attempt = new AbortController();
    const end = () => attempt.abort();
    signal.addEventListener('abort', end);
    let watch = setTimeout(end, SILENCE_MS);
    let problem = null;
    try {
      for await (const { event, data } of stream(path, attempt.signal)) {
        failures = 0;
        clearTimeout(watch);
        watch = setTimeout(end, SILENCE_MS);
        on(event, data);
      }
    } catch (error) {
      problem = error;
    }
    clearTimeout(watch);
    signal.removeEventListener('abort', end);
    if (signal.aborted) return;
    lost(problem);
    if (problem?.status === 401) return; // another token comes with another call
    const longest = Math.min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS * 2 ** failures++);
    await pause(longest * (0.5 + Math.random() / 2)); // not all pages at once
  }
}
