// Talking to the console: its events, and requests that change something. The token travels in a header only.

const KEY = "shmjet-console-token";
const LONGEST_PAUSE = 10000;

export const token = () => sessionStorage.getItem(KEY);

function headers(given = token()) {
  return given ? { Authorization: `Bearer ${given}` } : {};
}

/** Try a token, and keep it until the tab is closed if it is the right one. */
export async function unlock(given) {
  const answer = await fetch("api/token", { method: "POST", headers: headers(given) });
  if (answer.ok) sessionStorage.setItem(KEY, given);
  return answer.ok;
}

export const lock = () => sessionStorage.removeItem(KEY);

/** Ask something of a job ("cancel", "suspend", "resume", "restart"); returns an empty text, or why that was refused. */
export async function changeJob(id, verb) {
  try {
    const answer = await fetch(`api/jobs/${encodeURIComponent(id)}/${verb}`, { method: "POST", headers: headers() });
    if (answer.status === 401) lock();
    return answer.ok ? "" : (await answer.text()).trim();
  } catch {
    return "the console does not answer";
  }
}

/**
 * The stream of events. `EventSource` cannot send the token in a header, so this reads the stream itself.
 * `onState(state)` is called with each state, `onStatus(name)` with "live", "lost" or "locked".
 */
export class Events {
  constructor(onState, onStatus) {
    this.onState = onState;
    this.onStatus = onStatus;
    this.pause = 500;
    this.controller = null;
  }

  /** Watch this job (null: the newest), from now on. */
  watch(job) {
    this.controller?.abort();
    this.controller = new AbortController();
    this.run(job, this.controller.signal);
  }

  async run(job, signal) {
    while (!signal.aborted) {
      try {
        const query = job === null ? "" : `?job=${encodeURIComponent(job)}`;
        const answer = await fetch(`api/events${query}`, { headers: headers(), signal, cache: "no-store" });
        if (answer.status === 401) {
          this.onStatus("locked");
          return;
        }
        if (!answer.ok) throw new Error(String(answer.status));
        await this.read(answer.body);
      } catch {
        // told below
      }
      if (signal.aborted) return;
      this.onStatus("lost");
      await new Promise((resolve) => setTimeout(resolve, this.pause));
      this.pause = Math.min(2 * this.pause, LONGEST_PAUSE);
    }
  }

  async read(body) {
    const reader = body.pipeThrough(new TextDecoderStream()).getReader();
    let waiting = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const parts = (waiting + value).split("\n\n");
      waiting = parts.pop();
      const newest = parts.pop();
      if (newest === undefined) continue;
      this.pause = 500;
      this.onStatus("live");
      this.onState(JSON.parse(newest.replace(/^data: /, "")));
    }
  }
}
