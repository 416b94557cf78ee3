// What to say first. A person woken by a page reads one line: which server, what is wrong, since when.
import { at, duration, now, number, plural, words } from "./format.js";

/** State -> [word, sign, level, rank]. The sign tells the states apart without colour. */
const STATES = {
  stalled: ["stuck", "■", "bad", 0],
  down: ["down", "✕", "bad", 1],
  unknown: ["not seen", "?", "blind", 2],
  saturated: ["overloaded", "▲", "warn", 3],
  starting: ["starting", "◔", "calm", 4],
  serving: ["working", "●", "good", 5],
  idle: ["idle", "○", "calm", 6],
};

const DEAD = new Set(["engine_dead", "out_of_memory", "crash", "startup_failure"]);

export function stateOf(server, alerts) {
  const own = alerts.filter((alert) => alert.server === server.name);
  const critical = own.find((alert) => alert.state === "firing" && alert.severity === "critical");
  const warning = own.find((alert) => alert.state === "firing" || alert.severity === "critical");
  let [word, sign, level, rank] = STATES[server.state] || [server.state, "?", "blind", 2];
  if (critical && level !== "bad") [word, sign, level, rank] = DEAD.has(critical.failure) ? ["dead", "✕", "bad", 0.5] : ["stuck", "■", "bad", 0];
  else if (critical && DEAD.has(critical.failure)) [word, sign] = ["dead", "✕"];
  else if (warning && (level === "good" || level === "calm")) [word, sign, level, rank] = [word, "▲", "warn", 3];
  return { word, sign, level, rank, alert: critical || warning || null, since: at(critical ? critical.starts_at : server.since) };
}

/** Servers with their states, the worst first. */
export function ranked(status) {
  return status.servers
    .map((server) => ({ server, state: stateOf(server, status.alerts) }))
    .sort((a, b) => a.state.rank - b.state.rank || a.server.name.localeCompare(b.server.name));
}

/** {level, title, text, rows: [...]} for the top of the page. */
export function verdict(status) {
  const rows = ranked(status);
  const of = (level) => rows.filter((row) => row.state.level === level);
  const [bad, blind, warn] = [of("bad"), of("blind"), of("warn")];
  const total = rows.length;
  if (!total) return { level: "calm", title: "No server is watched yet", text: "Add one under servers: in the configuration, or run wedgewatch init.", rows: [] };
  if (bad.length === 1) {
    const { server, state } = bad[0];
    return { level: "bad", title: `${server.name} is ${state.word}`, since: state.since, text: server.why, rows: bad };
  }
  if (bad.length) return { level: "bad", title: `${bad.length} of ${total} servers are stuck or dead`, since: null, text: "", rows: bad };
  if (blind.length) {
    const names = blind.map(({ server }) => server.name).slice(0, 3).join(", ");
    return { level: "blind", title: total === blind.length ? `No server can be seen` : `${names} cannot be seen`, since: blind[0].state.since, text: blind[0].server.why, rows: [] };
  }
  if (warn.length) return { level: "warn", title: `${warn.map(({ server }) => server.name).slice(0, 3).join(", ")}: look when you can`, since: warn[0].state.since, text: warnText(warn[0]), rows: [] };
  const working = rows.filter(({ server }) => server.state === "serving").length;
  const rest = total - working;
  const title = total === 1 ? `${rows[0].server.name} is ${rows[0].state.word}` : working ? `All is well: ${plural(working, "server")} at work${rest ? `, ${rest} idle or starting` : ""}` : `All is well: ${plural(total, "server")} idle or starting`;
  return { level: "good", title, text: "", rows: [] };
}

function warnText({ server, state }) {
  const alert = state.alert;
  return alert ? alert.annotations.summary || words(alert.failure) : server.why;
}

export const levelOfAlert = (alert) => (alert.state === "resolved" ? "calm" : alert.severity === "critical" ? (alert.state === "firing" ? "bad" : "warn") : "warn");

/** "token budget deadlock, confirmed". */
export const nameOf = (alert) => `${words(alert.failure)}, ${alert.confidence}`;

export function spanOf(alert) {
  const from = at(alert.starts_at), to = at(alert.ends_at);
  return duration((to === null ? now() : to) - from);
}

/** A number before the onset against the number now, as a sentence. */
export function beforeAndNow(alert) {
  const { before, now: after } = alert.context || {};
  if (!before || !after) return [];
  const rows = [["finished_per_minute", "Finished per minute"], ["tokens_per_second", "Tokens per second"], ["requests_waiting", "Requests waiting"], ["requests_running", "Requests running"]];
  return rows.filter(([key]) => key in before || key in after).map(([key, title]) => [title, number(before[key]), number(after[key])]);
}
