// Rules, and the daemon's own health.
import { h } from "./dom.js";
import { at, bytes, duration, number, words } from "./format.js";
import { card, pill, since, table, when } from "./parts.js";

export function rulesPage(store) {
  const watched = new Set(store.status.servers.map((server) => server.engine));
  const applies = (rule) => !rule.engines.length || rule.engines.some((engine) => watched.has(engine));
  const rules = store.rules || [];
  const here = rules.filter(applies), others = rules.filter((rule) => !applies(rule));
  const newest = (rule) => at(rule.last_fired) || at(rule.last_match) || 0;
  here.sort((a, b) => newest(b) - newest(a));
  return [
    h("h1", null, "Rules in force"),
    rulesTable(here, "No rules are loaded."),
    others.length ? h("details", null, h("summary", null, `${number(others.length)} rules of engines that are not watched here`), rulesTable(others, "")) : null,
  ];
}

function rulesTable(rules, empty) {
  return table(["Rule", "Names", "Engines", "Stages", "Last match", "Last fired", "Fired"], rules.map((rule) => ({
    key: rule.file,
    cells: [
      [h("b", null, rule.name), h("br"), h("span", { class: "quiet" }, rule.file)],
      [pill(rule.severity === "critical" ? "bad" : "warn", rule.severity === "critical" ? "■" : "▲", rule.severity), " ", words(rule.failure)],
      rule.engines.join(", ") || "every",
      [rule.stages.length ? h("ul", { class: "list" }, rule.stages.map((stage) => h("li", null, `${stage.stage}${stage.optional ? " (may be missing)" : ""} `, h("span", { class: "quiet" }, `${number(stage.count)} seen`)))) : null,
        rule.progress ? h("div", null, `progress: ${rule.progress}${rule.for_s ? ` for ${duration(rule.for_s)}` : ""}`) : null,
        rule.when ? h("code", null, rule.when) : null],
      when(at(rule.last_match)),
      when(at(rule.last_fired)),
      number(rule.fired),
    ],
  })), empty);
}

export function healthPage(store) {
  const { health } = store.status;
  const sources = store.sources || [], outbox = store.outbox || [];
  return [
    h("section", { class: `banner ${health.problems.length ? "warn" : "good"}` },
      h("h1", null, h("span", { class: "sign", "aria-hidden": "true" }, health.problems.length ? "▲" : "✓"), health.problems.length ? "wedgewatch needs a look" : "wedgewatch is well"),
      health.problems.length ? h("ul", { class: "list" }, health.problems.map((text) => h("li", null, text))) : null),
    card("Itself", h("dl", { class: "facts" }, [
      ["Version", health.version], ["Runs for", since(at(health.started))], ["Memory", bytes(health.rss_bytes)], ["CPU time", duration(health.cpu_seconds)],
      ["State on disk", bytes(health.state_bytes)], ["Lines per second", number(health.lines_per_second)], ["Matcher", health.matcher || "–"],
      ["Configuration", health.config_file || "command line only"], ["Loaded", when(at(health.config_loaded))], ["Last reload", health.config_error || "taken"],
    ].map(([key, value]) => h("div", null, h("dt", null, key), h("dd", null, value))))),
    card("Log sources", table(["Server", "Source", "Kind", "Read", "Behind", "Last line", "State"], sources.map((source) => ({
      level: source.error ? "warn" : "",
      cells: [source.server, h("code", null, source.name), source.kind, `${number(source.lines)} lines`, bytes(source.lag_bytes), source.last_line ? since(at(source.last_line)) : "–",
        source.error ? [pill("warn", "▲", "cannot be read"), " ", source.error] : source.bytes_lost ? `${bytes(source.bytes_lost)} lost` : "ok"],
    })), "No log source is configured.")),
    card("Not delivered", table(["To", "What", "State", "Attempts", "Next", "Error"], outbox.map((item) => ({
      level: item.state === "dead" ? "bad" : "warn",
      cells: [`${item.receiver} (${item.integration})`, item.action, item.state, number(item.attempts), item.next_attempt ? when(at(item.next_attempt)) : "–", item.last_error],
    })), "Everything was delivered.")),
    card("Threads", table(["Name", "State", "Last round", "Restarts", "Error"], health.threads.map((thread) => ({
      level: thread.alive ? "" : "bad",
      cells: [thread.name, thread.alive ? "runs" : "dead", thread.last_beat ? since(at(thread.last_beat)) : "–", number(thread.restarts), thread.error],
    })), "None.")),
  ];
}
