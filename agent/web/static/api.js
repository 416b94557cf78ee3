// Talks to the daemon: JSON with the token when there is one, and the stream of changes with fetch (an EventSource
// cannot send the token).

let token = sessionStorage.getItem("token") || "";

export const hasToken = () => token !== "";

export function setToken(text) {
  token = text.trim();
  sessionStorage.setItem("token", token);
}

export class ApiError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

async function request(path, options = {}) {
  const headers = { ...(options.headers || {}) };
  if (token) headers.Authorization = `Bearer ${token}`;
  const response = await fetch(path, { ...options, headers, cache: "no-store", credentials: "omit" });
  if (!response.ok) {
    let message = response.statusText;
    try {
      message = (await response.json()).error || message;
    } catch { /* not ours */ }
    throw new ApiError(response.status, message);
  }
  return response;
}

export const get = async (path) => (await request(`/api/v1/${path}`, { signal: AbortSignal.timeout(15000) })).json();

export const post = async (path, body) =>
  (await request(`/api/v1/${path}`, { method: "POST", body: JSON.stringify(body), headers: { "Content-Type": "application/json" } })).json();

export async function download(path, name) {
  const blob = await (await request(`/api/v1/${path}`)).blob();
  const address = URL.createObjectURL(blob);
  const anchor = document.createElement("a");
  anchor.href = address;
  anchor.download = name;
  anchor.click();
  setTimeout(() => URL.revokeObjectURL(address), 10000);
}

/**
 * Calls onChange(topics) for each change, onState("live" | "lost") with the state of the line; returns only when the
 * token is wrong. A browser opens six connections to one address, for all tabs together: so a hidden tab holds no
 * stream but looks every 15 seconds, and a page that is left gives its stream up.
 */
export async function follow(onChange, onState) {
  for (let wait = 1; ; ) {
    if (document.hidden) {
      await Promise.race([pause(15000), event(document, "visibilitychange")]);
      onChange(null);
      continue;
    }
    const abort = new AbortController();
    const left = () => abort.abort();
    window.addEventListener("pagehide", left);
    document.addEventListener("visibilitychange", left);
    let alarm = 0;
    const rearm = () => {
      clearTimeout(alarm);
      alarm = setTimeout(left, 40000);
    };
    try {
      rearm();
      const response = await request("/api/v1/events", { signal: abort.signal });
      onState("live");
      onChange(null);
      wait = 1;
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      let rest = "";
      for (;;) {
        const { value, done } = await reader.read();
        if (done) break;
        rearm();
        const lines = (rest + value).split("\n");
        rest = lines.pop();
        for (const line of lines) if (line.startsWith("data: ")) onChange(JSON.parse(line.slice(6)).topics);
      }
    } catch (error) {
      if (error instanceof ApiError && error.status === 401) {
        onState("token");
        return;
      }
    } finally {
      clearTimeout(alarm);
      window.removeEventListener("pagehide", left);
      document.removeEventListener("visibilitychange", left);
    }
    if (document.hidden) continue;
    onState("lost");
    await pause(wait * 1000);
    wait = Math.min(wait * 2, 15);
  }
}

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

const event = (target, name) => new Promise((resolve) => target.addEventListener(name, resolve, { once: true }));
