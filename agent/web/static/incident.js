// One incident: what happened, the proof, what was done. And the list of all.
import { download, hasToken, post } from "./api.js";
import { h, link, prose } from "./dom.js";
import { at, bytes, clock, number, words } from "./format.js";
import { card, pill, serverPlots, since, table, when } from "./parts.js";
import { severityKind, stageMarkers } from "./servers.js";
import { beforeAndNow, levelOfAlert, spanOf } from "./verdict.js";

export function incidentsPage(store) {
  return [
    h("h1", null, "Incidents"),
    table(["State", "Server", "What", "Began", "Lasted", "Confidence"], (store.incidents || []).map((item) => {
      const { alert } = item;
      return {
        key: item.id,
        level: levelOfAlert(alert),
        cells: [
          pill(levelOfAlert(alert), alert.state === "resolved" ? "✓" : "■", alert.state),
          alert.server + (alert.labels.engine_index ? ` / ${alert.labels.engine_index}` : ""),
          h("a", { href: `#/incident/${encodeURIComponent(item.id)}` }, words(alert.failure)),
          when(at(alert.starts_at)),
          alert.ends_at ? spanOf(alert) : since(at(alert.starts_at)),
          alert.confidence,
        ],
      };
    }), "Nothing has fired yet. May it stay so."),
  ];
}

const ANSWER = { yes: ["✓", "yes"], no: ["✕", "no"] };

export function incidentPage(store, incident) {
  if (!incident) return [h("p", null, "No such incident; it may be older than what is kept. ", h("a", { href: "#/incidents" }, "All incidents"))];
  const { alert } = incident;
  const start = at(alert.starts_at), end = at(alert.ends_at);
  const open = alert.state !== "resolved";
  const level = levelOfAlert(alert);
  const context = alert.context || {};
  const engine = engineOf(store, alert);
  const to = end !== null ? Math.min(store.now(), end + 120) : store.now();
  const from = Math.max(start - 300, to - 6 * 3600);
  return [
    h("p", { class: "crumbs" }, h("a", { href: "#/incidents" }, "Incidents"), " / ", h("a", { href: `#/server/${encodeURIComponent(alert.server)}` }, alert.server)),
    h("section", { class: `banner ${level}` },
      h("h1", null, h("span", { class: "sign", "aria-hidden": "true" }, open ? "■" : "✓"), `${alert.server}: ${words(alert.failure)}`,
        h("span", { class: "for" }, open ? ["for ", since(start)] : `lasted ${spanOf(alert)}`)),
      h("p", { class: "why" }, alert.annotations.summary || ""),
      alert.annotations.description ? h("p", null, alert.annotations.description) : null,
      h("p", { class: "cause" }, h("b", null, `${alert.confidence}, ${alert.severity}`), ` · ${alert.alertname} · began ${clock(start)}`, alert.fired_at ? ` · fired ${clock(at(alert.fired_at))}` : "", end !== null ? ` · ended ${clock(end)}` : "")),
    h("div", { class: "two" },
      card(open ? "Do now" : "What to do", (context.actions || []).length ? h("ol", { class: "actions" }, context.actions.map((text) => h("li", null, prose(text)))) : h("p", { class: "quiet" }, "See the runbook."),
        alert.annotations.runbook_url ? h("p", null, link(alert.annotations.runbook_url, "Runbook")) : null,
        open ? muteButton(store, alert) : null),
      card("How it is known", checklist(alert), h("p", { class: "quiet" }, context.deadline_s ? `Counts as stuck after ${number(context.deadline_s)} s without progress (${context.deadline_source}).` : ""),
        (context.load || {}).sentence ? h("p", { class: "quiet" }, `Load: ${context.load.sentence}.`) : null,
        (context.excluded || []).length ? h("p", null, h("b", null, "Not this: "), context.excluded.join(" · ")) : null)),
    card("What happened",
      h("ol", { class: "stages" }, alert.stages.map((stage) => h("li", { class: severityKind(stage.severity) },
        h("span", { class: "time" }, clock(at(stage.timestamp))), h("b", null, stage.stage), stage.count > 1 ? ` ×${number(stage.count)}` : "",
        h("code", null, gist(stage.body)), h("span", { class: "quiet" }, stage.file ? `${stage.file}:${stage.line}` : "")))),
      alert.stages.length ? null : h("p", { class: "quiet" }, "No log line explains it; the signals alone do."),
      serverPlots(seriesOf(store, alert, engine), [engine], { from, to, bands: [{ from: start, to: end || to, kind: "bad" }], markers: stageMarkers(alert) })),
    h("div", { class: "two" },
      card("Before and now", table(["", "before", "now"], beforeAndNow(alert).map((cells) => ({ cells })), "No numbers from before.")),
      card("Sent", table(["When", "To", "What", "Outcome"], incident.deliveries.map((sent) => ({
        level: sent.outcome === "delivered" ? "" : "warn",
        cells: [when(at(sent.timestamp)), `${sent.receiver} (${sent.integration})`, sent.action, [pill(sent.outcome === "delivered" ? "good" : sent.outcome === "dead" ? "bad" : "warn", sent.outcome === "delivered" ? "✓" : "…", sent.outcome), " ", h("span", { class: "quiet" }, sent.detail)]],
      })), "Nothing was sent."))),
    (incident.context || []).length ? card("Lines around it", lines(incident.context)) : null,
    h("div", { class: "two" },
      card("Evidence", (incident.evidence || []).length ? [
        h("ul", { class: "list" }, incident.evidence.map((file) => h("li", null, h("code", null, file.name), " ", file.size ? bytes(file.size) : "", file.note ? h("span", { class: "quiet" }, ` ${file.note}`) : ""))),
        h("button", { type: "button", class: "button", onclick: () => download(`incidents/${encodeURIComponent(incident.id)}/evidence.tar`, `wedgewatch-${incident.id}.tar`) }, "Download all (tar)")]
        : h("p", { class: "quiet" }, "None was taken."),
        incident.actions_taken.length ? h("ul", { class: "list" }, incident.actions_taken.map((text) => h("li", null, text))) : null),
      card("Course", h("ul", { class: "list" }, incident.history.map((step) => h("li", null, clock(at(step.timestamp)), " ", h("b", null, step.state), ` (${step.confidence}) ${step.note}`))),
        h("details", null, h("summary", null, "Labels and numbers"), h("dl", { class: "facts" }, [...Object.entries(alert.labels), ...Object.entries(context.facts || {}).map(([key, value]) => [words(key), number(value)]), ["fingerprint", alert.fingerprint]].map(([key, value]) => h("div", null, h("dt", null, key), h("dd", null, value))))))),
  ];
}

/** The replica that the alert is about, as the series name it: a server with one engine may call it "0". */
function engineOf(store, alert) {
  const named = (alert.context || {}).engine_index || alert.labels.engine_index || "";
  const live = new Set([...(store.series.get(alert.server) || new Map()).keys()].map((key) => key.slice(0, key.lastIndexOf("/"))));
  return live.has(named) || live.size !== 1 ? named : [...live][0];
}

/** What the alert carries of the time before, and the live series from where those begin. */
function seriesOf(store, alert, engine) {
  const out = new Map();
  for (const [name, points] of Object.entries((alert.context || {}).series || {})) {
    out.set(`${engine}/${name === "tokens_per_second" ? "generation_tokens_per_second" : name}`, points);
  }
  for (const [key, points] of store.series.get(alert.server) || []) {
    if (key.startsWith(`${engine}/`) && points.length) out.set(key, (out.get(key) || []).filter(([t]) => t < points[0][0]).concat(points));
  }
  return out;
}

/** A traceback as far as a tired person reads it: how it begins and how it ends; the whole stands among the lines. */
function gist(body) {
  const all = body.trimEnd().split("\n");
  return all.length <= 7 ? body : [all[0], `  … ${all.length - 5} lines …`, ...all.slice(-4)].join("\n");
}

function checklist(alert) {
  const list = alert.checklist;
  const rows = [
    ["Nothing completes while requests wait", list.stopped_with_queue],
    ["It began with the load, not with a change", list.follows_load],
    ["The same load with a smaller budget survives", list.smaller_budget_survives],
  ];
  return h("ul", { class: "checks" }, rows.map(([question, answer]) => {
    const [sign, kind] = ANSWER[String(answer).split(/[:,\s]/)[0]] || ["?", "open"];
    const [, word, how] = String(answer).match(/^([^:]*)(:[^]*)?$/);
    return h("li", { class: kind }, h("span", { class: "sign", "aria-hidden": "true" }, sign), h("span", null, question, ": ", h("b", null, word), how ? h("span", { class: "quiet" }, how) : ""));
  }));
}

function lines(context) {
  return h("div", { class: "log", tabindex: "0", role: "log", "aria-label": "Log lines" }, context.map((line) =>
    h("div", { class: `row ${line.stage ? `hit ${severityKind(line.severity)}` : ""}` },
      h("span", { class: "at" }, line.timestamp ? clock(at(line.timestamp)) : ""), h("span", { class: "no" }, line.line || ""), h("span", { class: "text" }, line.text), line.stage ? h("span", { class: "stage" }, line.stage) : null)));
}

function muteButton(store, alert) {
  if (!hasToken()) return null;
  return h("button", {
    type: "button",
    onclick: async () => {
      if (!window.confirm(`Send nothing about ${alert.server} for one hour?`)) return;
      try {
        await post("mutes", { matchers: [`server=${JSON.stringify(alert.server)}`], for_s: 3600, comment: "from the page" });
        store.say(`Nothing about ${alert.server} is sent for one hour.`);
      } catch (error) {
        store.say(error.message);
      }
    },
  }, "Mute this server for 1 h");
}

