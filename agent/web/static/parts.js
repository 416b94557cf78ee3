// Pieces that several pages use.
import { h } from "./dom.js";
import { clock, duration, iso, now } from "./format.js";
import { plot } from "./plot.js";

/** "3m 15s", counting on by itself. */
export function since(seconds) {
  if (seconds === null || seconds === undefined) return h("span", null, "–");
  return h("time", { class: "since", "data-since": seconds, datetime: iso(seconds), title: iso(seconds) }, duration(now() - seconds));
}

export function tick() {
  for (const node of document.querySelectorAll("[data-since]")) {
    const text = duration(now() - Number(node.dataset.since));
    if (node.textContent !== text) node.textContent = text;
  }
}

export const when = (seconds) => (seconds === null || seconds === undefined ? h("span", { class: "quiet" }, "never") : h("time", { datetime: iso(seconds), title: iso(seconds) }, clock(seconds)));

export const pill = (level, sign, word) => h("span", { class: `pill ${level}` }, h("span", { class: "sign", "aria-hidden": "true" }, sign), word);

export const card = (title, ...children) => h("section", { class: "card" }, title ? h("h2", null, title) : null, ...children);

/** A table whose cells carry their column's name: on a phone each row becomes a small card. */
export function table(columns, rows, empty) {
  if (!rows.length) return h("p", { class: "quiet" }, empty);
  return h("div", { class: "table" }, h("table", null,
    h("thead", null, h("tr", null, columns.map((name) => h("th", { scope: "col" }, name)))),
    h("tbody", null, rows.map((row) => h("tr", { class: row.level || null, "data-key": row.key || null },
      row.cells.map((cell, i) => h("td", { "data-label": columns[i] }, h("div", null, cell))))))));
}

/** Where the axis begins: `from`, or a little before the first point when nothing is older. */
export function begin(series, from, to) {
  const first = Math.min(to - 60, ...[...series].map((points) => (points.length ? points[0][0] : Infinity)));
  return Math.max(from, first - (to - first) * 0.03);
}

/** The plots of a server, one line a replica. `series`: Map "engine/signal" -> points. */
export function serverPlots(series, engines, { from, to, bands, markers }) {
  const several = engines.length > 1;
  const pick = (signal, name, kind, area) =>
    engines.map((engine, i) => ({ name: several ? engine : name, kind: several ? `k${i % 8}` : kind, area: area && !several, points: series.get(`${engine}/${signal}`) || [] }));
  const shown = (markers || []).filter((marker) => marker.t > from).map((marker) => [[marker.t, 0]]);
  const common = { from: begin([...series.values(), ...shown], from, to), to, bands, markers };
  const waiting = pick("requests_waiting", "waiting", "waiting", true), running = pick("requests_running", "running", "running");
  const made = pick("generation_tokens_per_second", "generated", "tokens", true), read = pick("prompt_tokens_per_second", "prompt", "prompt");
  const by = several ? " by replica" : "";
  return h("div", { class: "plots" },
    plot({ ...common, title: several ? `Waiting${by}` : "Queue", unit: "requests", series: several ? waiting : [...waiting, ...running] }),
    several ? plot({ ...common, title: `Running${by}`, unit: "requests", series: running }) : null,
    plot({ ...common, title: `Completions${by}`, unit: "per minute", series: pick("finished_per_minute", "finished", "finished", true) }),
    plot({ ...common, title: several ? `Tokens generated${by}` : "Tokens", unit: "per second", series: several ? made : [...made, ...read] }),
    plot({ ...common, title: `KV cache in use${by}`, unit: "ratio", max: 1, series: pick("kv_cache_usage_ratio", "used", "kv", true) }));
}
