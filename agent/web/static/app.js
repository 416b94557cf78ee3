// Ties the page together: what is known, which page is asked for, and what changed.
import { ApiError, follow, get, setToken } from "./api.js";
import { h, morph } from "./dom.js";
import { settings } from "./format.js";
import { incidentPage, incidentsPage } from "./incident.js";
import { healthPage, rulesPage } from "./lists.js";
import { onsetPage } from "./onset.js";
import { tick } from "./parts.js";
import { serverPage, serversPage } from "./servers.js";
import { ranked, verdict } from "./verdict.js";

const PAGES = [["#/", "Servers"], ["#/incidents", "Incidents"], ["#/rules", "Rules"], ["#/onset", "Onset"], ["#/health", "Health"]];
const KEPT = 6 * 3600; // seconds of series that the page holds
const CARDS = 24; // servers whose small plots are kept up to date on the first screen

const store = {
  status: null, incidents: null, incident: null, rules: null, sources: null, outbox: null, onset: null,
  series: new Map(), spans: new Map(), past: new Map(), range: 900, message: "", read: 0,
  now: () => Date.now() / 1000 - settings.skew,
  setRange(seconds) {
    store.range = seconds;
    render();
    refresh(null);
  },
  say(text) {
    store.message = text;
    render();
    setTimeout(() => { store.message = ""; render(); }, 6000);
  },
};

function route() {
  const [, page = "", name = ""] = location.hash.split("/");
  let decoded = name;
  try { decoded = decodeURIComponent(name); } catch { /* as it is */ }
  return { page, name: decoded };
}

// ---- what is known ----

/** Brings the series of some servers up to date with one request. */
async function loadSeries(servers, span) {
  if (!servers.length) return;
  let since = store.now();
  for (const server of servers) {
    if (span > (store.spans.get(server) || 0)) {
      store.series.set(server, new Map()); // what is held does not reach back far enough
      store.spans.set(server, span);
    }
    const ends = [...store.series.get(server).values()].map((points) => (points.length ? points.at(-1)[0] : 0));
    since = Math.min(since, Math.max(0, ...ends));
  }
  since = Math.max(since, store.now() - span);
  const query = new URLSearchParams({ since: since.toFixed(3), points: span > 900 ? "720" : "240" });
  for (const server of servers) query.append("server", server);
  for (const { server, engine_index: engine, signal, points } of await get(`series?${query}`)) {
    const have = store.series.get(server), key = `${engine}/${signal}`;
    const old = have.get(key) || [];
    const last = old.length ? old.at(-1)[0] : 0;
    const all = old.concat(points.filter(([t]) => t > last));
    const first = all.findIndex(([t]) => t > store.now() - KEPT);
    have.set(key, first > 0 ? all.slice(first) : all);
  }
}

const wants = (topics, ...mine) => topics === null || topics.some((topic) => mine.includes(topic));

let busy = false, again = null;

/** Reads anew what changed and is on show; changes that come meanwhile are read after it. */
async function refresh(topics) {
  if (busy) {
    again = again === null || topics === null ? (topics === null ? "all" : topics) : again === "all" ? again : [...again, ...topics];
    return;
  }
  busy = true;
  try {
    await read(topics);
    store.failed = "";
    store.read = Date.now();
  } catch (error) {
    if (error instanceof ApiError && error.status === 401) return askToken();
    store.failed = error.message;
  } finally {
    busy = false;
  }
  render();
  if (again !== null) {
    const next = again === "all" ? null : again;
    again = null;
    await refresh(next);
  }
}

/** The last incidents of a server in the span that is shown, whole, the newest first; each is fetched once. */
async function loadPast(name) {
  const over = store.incidents.filter(({ alert }) => alert.server === name && alert.ends_at && store.now() - Date.parse(alert.ends_at) / 1000 < store.range).slice(0, 3);
  const kept = store.past.get(name) || [];
  const whole = await Promise.all(over.map(({ id }) => kept.find((item) => item.id === id) || get(`incidents/${encodeURIComponent(id)}`).catch(() => null)));
  store.past.set(name, whole.filter((item) => item !== null));
}

async function read(topics) {
  const { page, name } = route();
  store.status = await get("status");
  settings.skew = Date.now() / 1000 - store.status.now;
  if (wants(topics, "incidents", "alerts") || store.incidents === null) store.incidents = await get("incidents?limit=100");
  const known = (server) => store.status.servers.some((item) => item.name === server);
  if (page === "") await loadSeries(ranked(store.status).slice(0, CARDS).map(({ server }) => server.name), 900);
  if (page === "server" && known(name)) await Promise.all([loadSeries([name], store.range), loadPast(name)]);
  if (page === "incident") {
    store.incident = await get(`incidents/${encodeURIComponent(name)}`).catch((error) => { if (error.status === 404) return null; throw error; });
    if (store.incident && known(store.incident.alert.server)) await loadSeries([store.incident.alert.server], 1800);
  }
  if (page === "rules") store.rules = await get("rules");
  if (page === "health") [store.sources, store.outbox] = await Promise.all([get("sources"), get("outbox")]);
  if (page === "onset") {
    const server = name || (ranked(store.status)[0] || { server: {} }).server.name;
    store.onset = server ? await get(`onset?server=${encodeURIComponent(server)}`).catch((error) => { if (error.status === 404) return null; throw error; }) : null;
  }
}

// ---- what is shown ----

function render() {
  const { page, name } = route();
  const nav = document.getElementById("nav");
  const current = `#/${{ server: "", incident: "incidents" }[page] ?? page}`;
  const problems = store.status ? store.status.health.problems.length : 0;
  morph(nav, h("nav", null, PAGES.map(([address, title]) => h("a", { href: address, "aria-current": address === current ? "page" : null }, title, title === "Health" && problems ? h("span", { class: "count", title: "problems" }, String(problems)) : null))));
  const content = h("main", null,
    store.message ? h("p", { class: "note", role: "status" }, store.message) : null,
    store.failed ? h("p", { class: "note bad", role: "alert" }, `What you see is old: wedgewatch does not answer (${store.failed}).`) : null,
    store.status ? pageOf(page, name) : h("p", { class: "quiet" }, "Loading …"));
  morph(document.getElementById("main"), content);
  showHits();
  head();
}

/** A log view opens at the lines that matter. */
function showHits() {
  for (const box of document.querySelectorAll(".log")) {
    const hit = box.querySelector(".hit.error") || box.querySelector(".hit");
    if (!hit || box.opened === location.hash) continue;
    box.opened = location.hash;
    box.scrollTop = hit.offsetTop - box.clientHeight / 3;
  }
}

function pageOf(page, name) {
  switch (page) {
    case "": return serversPage(store);
    case "server": return serverPage(store, name);
    case "incidents": return incidentsPage(store);
    case "incident": return incidentPage(store, store.incident);
    case "rules": return rulesPage(store);
    case "onset": return onsetPage(store, name || (store.onset || {}).server || "", store.onset);
    case "health": return healthPage(store);
    default: return [h("p", null, "There is no such page. ", h("a", { href: "#/" }, "Servers"))];
  }
}

function head() {
  if (!store.status) return;
  const { level, title } = verdict(store.status);
  document.title = level === "bad" ? `■ ${title} · wedgewatch` : `${title} · wedgewatch`;
  const icon = level === "bad" ? "icon-bad.svg" : "icon.svg";
  const node = document.getElementById("icon");
  if (node.getAttribute("href") !== icon) node.setAttribute("href", icon);
}

function askToken() {
  const field = h("input", { type: "password", autocomplete: "off", required: true, "aria-label": "Token", placeholder: "token" });
  document.getElementById("main").replaceChildren(h("form", {
    class: "card token",
    onsubmit: (event) => {
      event.preventDefault();
      setToken(field.value);
      start();
    },
  }, h("h1", null, "This page needs its token"), h("p", null, "It is in the file that web.token_file names. It is kept for this tab only."), field, h("button", { type: "submit" }, "Open")));
  field.focus();
}

// ---- settings and keys ----

const THEMES = ["auto", "light", "dark"];

function applySettings() {
  const theme = localStorage.getItem("theme") || "auto";
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  settings.utc = localStorage.getItem("utc") === "1";
  document.getElementById("zone").textContent = settings.utc ? "UTC" : "local";
}

function switchTheme() {
  const next = THEMES[(THEMES.indexOf(localStorage.getItem("theme") || "auto") + 1) % THEMES.length];
  localStorage.setItem("theme", next);
  applySettings();
}

function switchZone() {
  localStorage.setItem("utc", settings.utc ? "0" : "1");
  applySettings();
  render();
}

document.getElementById("theme").onclick = switchTheme;
document.getElementById("zone").onclick = switchZone;
document.addEventListener("keydown", (event) => {
  if (event.target.closest("input, textarea, select") || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key >= "1" && event.key <= String(PAGES.length)) location.hash = PAGES[Number(event.key) - 1][0];
  else if (event.key === "t") switchTheme();
  else if (event.key === "u") switchZone();
});
window.addEventListener("hashchange", () => {
  store.incident = null;
  render();
  window.scrollTo(0, 0);
  refresh(null);
});

function setLink(state) {
  const node = document.getElementById("link");
  node.className = `link ${state}`;
  node.textContent = { live: "live", lost: "connection lost, trying again" }[state] || "";
}

let following = false;

async function start() {
  await refresh(null);
  if (!store.status || following) return;
  following = true;
  follow((topics) => refresh(topics), (state) => {
    setLink(state);
    if (state === "lost") refresh(null);
    if (state === "token") following = false;
  });
}

applySettings();
start();
setInterval(tick, 1000);
setInterval(() => { // plots move on while nothing is told, and what is old is asked for
  if (!store.status || document.hidden) return;
  if (Date.now() - store.read > 10000) refresh(["servers"]);
  else render();
}, 5000);
