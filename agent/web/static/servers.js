// The first screen: one sentence, what to do, then every server.
import { h, prose } from "./dom.js";
import { at, clock, number, percent, plural } from "./format.js";
import { begin, pill, serverPlots, since } from "./parts.js";
import { sparkline } from "./plot.js";
import { nameOf, ranked, spanOf, verdict } from "./verdict.js";

const WINDOW = 900;

export function serversPage(store) {
  const { status } = store;
  const top = verdict(status);
  return [
    banner(top, store),
    h("div", { class: "servers" }, ranked(status).map(({ server, state }) => serverCard(server, state, store, top))),
    status.health.observe ? observing(status.observed) : null,
    lately(store),
  ];
}

/** Who comes here because of a page may come when it is over: what ended within the last day, the newest first. */
function lately(store) {
  const over = (store.incidents || []).filter(({ alert }) => alert.ends_at && store.now() - at(alert.ends_at) < 86400)
    .sort((a, b) => at(b.alert.ends_at) - at(a.alert.ends_at)).slice(0, 5);
  return over.length ? h("section", { class: "lately" }, h("h2", null, "Over within the last day"), h("ul", { class: "list" }, over.map(({ id, alert }) =>
    h("li", null, h("a", { href: `#/incident/${encodeURIComponent(id)}` }, `${alert.server}: ${alert.failure.replaceAll("_", " ")}`), ` from ${clock(at(alert.starts_at))} for ${spanOf(alert)}`)))) : null;
}

function observing(report) {
  const note = h("p", { class: "note" }, "Observing only (--observe): nothing is sent to anyone.");
  if (!report) return note;
  const found = `Since ${clock(at(report.since))}: ${plural(report.pages, "page")} and ${plural(report.warnings, "warning")} would have been sent.`;
  return [note, h("section", { class: "observed" }, h("h2", null, "What would have paged"), h("p", null, found),
    report.alerts.length ? h("ul", { class: "list" }, report.alerts.slice(0, 20).map((item) =>
      h("li", null, `${clock(at(item.fired))} ${item.server}: ${item.failure.replaceAll("_", " ")} (${item.confidence}), `,
        item.ended ? "over" : "still open", item.receivers.length ? `; to ${item.receivers.join(", ")}` : "; to nobody: no route"))) : null)];
}

export function incidentOf(alert, store) {
  const found = (store.incidents || []).find((item) => item.alert.fingerprint === alert.fingerprint && item.alert.state !== "resolved");
  return found ? `#/incident/${encodeURIComponent(found.id)}` : `#/server/${encodeURIComponent(alert.server)}`;
}

function banner(top, store) {
  const alert = top.rows.length === 1 ? top.rows[0].state.alert : null;
  return h("section", { class: `banner ${top.level}`, "aria-live": "polite" },
    h("h1", null, h("span", { class: "sign", "aria-hidden": "true" }, { bad: "■", warn: "▲", blind: "?", good: "✓", calm: "○" }[top.level]), top.title,
      top.since ? h("span", { class: "for" }, "for ", since(top.since)) : null),
    top.text ? h("p", { class: "why" }, top.text) : null,
    alert ? advice(alert, store) : null,
    top.rows.length > 1 ? h("ul", { class: "list" }, top.rows.map(({ server, state }) =>
      h("li", null, h("a", { href: state.alert ? incidentOf(state.alert, store) : `#/server/${encodeURIComponent(server.name)}` },
        `${server.name} is ${state.word}`), " for ", since(state.since), state.alert ? `: ${nameOf(state.alert)}` : ""))) : null);
}

function advice(alert, store) {
  const actions = (alert.context || {}).actions || [];
  return [
    h("p", { class: "cause" }, "Cause: ", h("b", null, nameOf(alert)), " · since ", h("b", null, clock(at(alert.starts_at)))),
    actions.length ? h("div", { class: "do" }, h("h2", null, "Do now"), h("ol", null, actions.slice(0, 4).map((text) => h("li", null, prose(text))))) : null,
    h("p", { class: "go" }, h("a", { class: "button", href: incidentOf(alert, store) }, "See the proof")),
  ];
}

function serverCard(server, state, store, top) {
  const series = store.series.get(server.name) || new Map();
  const engines = [...new Set([...series.keys()].map((key) => key.slice(0, key.lastIndexOf("/"))))];
  const sum = (signal) => addUp(engines.map((engine) => series.get(`${engine}/${signal}`) || []));
  const waiting = sum("requests_waiting"), finished = sum("finished_per_minute");
  const to = store.now(), from = begin([waiting, finished], to - WINDOW, to);
  const v = server.values;
  const onset = state.level === "bad" && state.since ? [{ from: state.since, to, kind: "bad" }] : [];
  return h("a", { class: `server ${state.level}`, href: `#/server/${encodeURIComponent(server.name)}`, "data-key": server.name },
    h("div", { class: "head" },
      h("h2", null, server.name),
      pill(state.level, state.sign, state.word),
      h("span", { class: "for" }, state.since ? ["for ", since(state.since)] : "")),
    h("p", { class: "quiet" }, [server.engine, ...Object.values(server.labels)].join(" · "),
      server.replicas.length > 1 ? ` · ${plural(server.replicas.length, "replica")}` : ""),
    h("dl", { class: "numbers" },
      fact("waiting", number(v.requests_waiting)),
      fact("running", number(v.requests_running)),
      fact("finished/min", number(v.finished_per_minute)),
      fact("tokens/s", number(v.generation_tokens_per_second)),
      fact("KV", percent(v.kv_cache_usage_ratio))),
    h("div", { class: "sparks" },
      h("div", null, h("span", { class: "key waiting" }, "waiting"), sparkline({ from, to, height: 34, bands: onset, series: [{ name: "waiting", kind: "waiting", area: true, points: waiting }] })),
      h("div", null, h("span", { class: "key finished" }, "finished/min"), sparkline({ from, to, height: 34, bands: onset, series: [{ name: "finished", kind: "finished", area: true, points: finished }] }))),
    state.level === "good" || state.level === "calm" || server.why === top.text ? null : h("p", { class: "why" }, server.why),
    server.replicas.length > 1 ? h("p", { class: "replicas" }, server.replicas.map((r) => pill(r.state === "stalled" || r.state === "down" ? "bad" : r.state === "unknown" ? "blind" : r.state === "serving" ? "good" : "calm", r.state === "stalled" ? "■" : "●", r.engine_index || "0"))) : null);
}

const fact = (name, value) => h("div", null, h("dt", null, name), h("dd", null, value));

/** Point by point sum of several series on (nearly) the same times. */
function addUp(all) {
  if (all.length < 2) return all[0] || [];
  const sums = new Map();
  for (const points of all) for (const [t, v] of points) if (v !== null) sums.set(Math.round(t), (sums.get(Math.round(t)) || 0) + v);
  return [...sums].sort(([a], [b]) => a - b);
}

/** The live series begin anew when a server restarts; what its last incidents carry of the time before stands in front. */
function withPast(store, name) {
  const live = store.series.get(name) || new Map();
  const out = new Map(live);
  const only = new Set([...live.keys()].map((key) => key.slice(0, key.lastIndexOf("/"))));
  for (const { alert } of store.past.get(name) || []) {
    const { series = {}, engine_index: index = "" } = alert.context || {};
    const engine = only.has(index) || only.size !== 1 ? index : [...only][0];
    for (const [signal, points] of Object.entries(series)) {
      const key = `${engine}/${signal === "tokens_per_second" ? "generation_tokens_per_second" : signal}`;
      const later = out.get(key) || [];
      out.set(key, points.filter(([t]) => !later.length || t < later[0][0]).concat(later));
    }
  }
  return out;
}

/** The page of one server. */
export function serverPage(store, name) {
  const row = ranked(store.status).find(({ server }) => server.name === name);
  if (!row) return [h("h1", null, name), h("p", null, "No server of this name is watched here. ", h("a", { href: "#/" }, "All servers"))];
  const { server, state } = row;
  const series = withPast(store, name);
  const engines = server.replicas.length ? server.replicas.map((r) => r.engine_index) : [""];
  const to = store.now(), from = to - store.range;
  const own = (store.incidents || []).filter((item) => item.alert.server === name);
  const bands = own.map(({ alert }) => ({ from: at(alert.starts_at), to: at(alert.ends_at) || to, kind: alert.severity === "critical" ? "bad" : "warn" }));
  return [
    h("p", { class: "crumbs" }, h("a", { href: "#/" }, "Servers"), " / ", name),
    h("section", { class: `banner ${state.level}` },
      h("h1", null, h("span", { class: "sign", "aria-hidden": "true" }, state.sign), `${name} is ${state.word}`, h("span", { class: "for" }, "for ", since(state.since))),
      h("p", { class: "why" }, server.why),
      state.alert ? h("p", { class: "go" }, h("a", { class: "button", href: incidentOf(state.alert, store) }, "See the proof")) : null),
    h("div", { class: "ranges", role: "group", "aria-label": "Time span" }, [[900, "15 min"], [3600, "1 h"], [21600, "6 h"]].map(([seconds, text]) =>
      h("button", { type: "button", "aria-pressed": String(store.range === seconds), onclick: () => store.setRange(seconds) }, text))),
    serverPlots(series, engines, { from, to, bands, markers: own.flatMap(({ alert }) => stageMarkers(alert)) }),
    h("section", { class: "card" }, h("h2", null, "What is known"), h("dl", { class: "facts" },
      [["Engine", server.engine],
        ["Last sign of progress", server.last_progress ? since(at(server.last_progress)) : "–"],
        ["Counts as stuck after", server.deadline_s ? `${number(server.deadline_s)} s without progress (${server.deadline_source})` : "–"],
        ["Last log line", server.last_line ? since(at(server.last_line)) : "–"],
        ["Metrics read", server.last_scrape ? since(at(server.last_scrape)) : "–"],
        ["Metrics error", server.scrape_error || "none"],
        ["Server runs for", server.started ? since(at(server.started)) : "–"],
        ...(server.canary ? [["Canary", `${number(server.canary.answered)} of ${number(server.canary.requests)} answered, ${plural(server.canary.prompt_tokens + server.canary.completion_tokens, "token")} spent${server.canary.last_error ? `; ${server.canary.last_error}` : ""}`]] : []),
        ...Object.entries(server.facts).map(([key, value]) => [key.replaceAll("_", " "), number(value)]),
      ].map(([key, value]) => h("div", null, h("dt", null, key), h("dd", null, value))))),
    server.pressure ? h("section", { class: "card" }, h("h2", null, "How near the ceiling"), h("p", null, server.pressure)) : null,
    server.advice.length ? h("section", { class: "card" }, h("h2", null, "What to admit"), server.advice.map((text) => h("p", null, text))) : null,
    server.replicas.length > 1 ? h("section", { class: "card" }, h("h2", null, "Replicas"), h("ul", { class: "list" }, server.replicas.map((r) =>
      h("li", null, `${r.engine_index}: ${r.state} for `, since(at(r.since)), ` · ${number(r.values.requests_waiting)} waiting, ${number(r.values.requests_running)} running`)))) : null,
    h("p", null, h("a", { href: `#/onset/${encodeURIComponent(name)}` }, "Load at each onset")),
  ];
}

/** The lines of an alert, numbered, for the plots. */
export function stageMarkers(alert) {
  return alert.stages.map((stage, i) => ({ t: at(stage.timestamp), text: String(i + 1), title: `${stage.stage}: ${stage.body}`.slice(0, 300), kind: severityKind(stage.severity) }));
}

export const severityKind = (severity) => (["ERROR", "FATAL"].includes(severity) ? "error" : severity === "WARN" ? "warn" : "info");
