// Checklist 2 as a picture: at which load does it begin, and is it the load at all?
import { h, s } from "./dom.js";
import { at, clock, duration, number, words } from "./format.js";
import { card, table } from "./parts.js";
import { nice } from "./plot.js";

export function onsetPage(store, name, onset) {
  const names = store.status.servers.map((server) => server.name);
  return [
    h("h1", null, "Load at each onset"),
    h("p", { class: "tabs" }, names.map((other) => h("a", { href: `#/onset/${encodeURIComponent(other)}`, "aria-current": other === name ? "page" : null }, other))),
    onset ? report(onset) : h("p", { class: "quiet" }, "Nothing is known of this server's onsets yet."),
  ];
}

function report(onset) {
  return [
    h("section", { class: "banner calm" }, h("h1", null, onset.threshold !== null ? `Begins at about ${number(onset.threshold)} ${onset.unit}` : "No threshold is known yet"),
      h("p", { class: "why" }, onset.verdict || "Too few onsets to tell."),
      onset.safe_ceiling !== null ? h("p", { class: "cause" }, "Safe ceiling: ", h("b", null, `${number(onset.safe_ceiling)} ${onset.unit}`)) : null),
    card("Healthy hours and onsets by load", picture(onset)),
    h("div", { class: "two" },
      card("Onsets", table(["When", onset.unit, "What"], onset.onsets.map((point) => ({ cells: [clock(at(point.timestamp)), number(point.load), words(point.failure)] })), "None yet.")),
      card("Restarts and changes", table(["When", "What"], onset.changes.map((change) => ({ cells: [clock(at(change.timestamp)), change.what] })), "None seen."))),
  ];
}

const W = 720, H = 230, L = 56, R = 16, T = 34, B = 40;

function picture({ onsets, healthy, threshold, low, high, safe_ceiling: safe, unit }) {
  const loads = [...onsets.map((point) => point.load), ...healthy.map(([, to]) => to), high || 0];
  const peak = Math.max(...healthy.map(([, , seconds]) => seconds), 1);
  const limit = nice(Math.max(...loads, 1));
  const x = (load) => L + (load / limit) * (W - L - R);
  const y = (seconds) => H - B - (seconds / peak) * (H - T - B);
  const parts = [];
  if (low !== null && high !== null) parts.push(s("rect", { class: "band bad", x: x(low), y: T, width: Math.max(2, x(high) - x(low)), height: H - T - B }));
  for (const [from, to, seconds] of healthy) {
    if (seconds > 0) parts.push(s("rect", { class: "bar-healthy", x: x(from) + 0.5, y: y(seconds), width: Math.max(1, x(to) - x(from) - 1), height: H - B - y(seconds) }, s("title", null, `${number(from)} to ${number(to)}: healthy for ${duration(seconds)}`)));
  }
  for (const [seconds, text] of [[0, "0"], [peak, duration(peak)]]) parts.push(s("text", { class: "tick", x: L - 6, y: y(seconds) + 4, "text-anchor": "end" }, text));
  parts.push(s("line", { class: "grid", x1: L, x2: W - R, y1: H - B, y2: H - B }));
  for (let i = 0; i <= 4; i += 1) parts.push(s("text", { class: "tick", x: x((limit * i) / 4), y: H - B + 15, "text-anchor": "middle" }, number((limit * i) / 4)));
  parts.push(s("text", { class: "tick", x: (L + W - R) / 2, y: H - 6, "text-anchor": "middle" }, unit));
  const upright = (load, kind, text, side) => [
    s("line", { class: `mark ${kind}`, x1: x(load), x2: x(load), y1: T - 8, y2: H - B }),
    s("text", { class: "tick", x: x(load) + (side === "end" ? -4 : 4), y: T - 12, "text-anchor": side }, text)];
  if (safe !== null) parts.push(...upright(safe, "good", `safe ceiling ${number(safe)}`, "end"));
  if (threshold !== null) parts.push(...upright(threshold, "error", `onset ${number(threshold)}`, x(threshold) > W - 120 && safe === null ? "end" : "start"));
  onsets.forEach((point, i) => parts.push(s("g", null, s("title", null, `${words(point.failure)} at ${number(point.load)}`),
    s("path", { class: "onset", d: `M${x(point.load)} ${H - B - 16 - (i % 3) * 13}l6 6l-6 6l-6 -6Z` }))));
  return [
    h("div", { class: "picture" }, s("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": `Healthy time by load, ${onsets.length} onsets, threshold ${number(threshold)}` }, parts)),
    h("p", { class: "legend" }, h("span", { class: "key healthy" }, "healthy time"), h("span", { class: "key onset-key" }, "onset"), low !== null ? h("span", { class: "key band-key" }, `threshold ${number(low)} to ${number(high)}`) : null),
  ];
}
