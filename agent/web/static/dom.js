// Builds and updates the page. Text goes in as text nodes only: there is no way through here for markup, so a log
// line that holds a script stays a line.

const SVG = "http://www.w3.org/2000/svg";

/** An element: h("p", {class: "x", onclick: f}, "text", child, [children]). Null and false children are left out. */
export function h(tag, attributes, ...children) {
  return build(document.createElement(tag), attributes, children);
}

/** The same for SVG. */
export function s(tag, attributes, ...children) {
  return build(document.createElementNS(SVG, tag), attributes, children);
}

function build(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node[name] = value;
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...children.flat(4).filter((child) => child !== null && child !== undefined && child !== false && child !== ""));
  return node;
}

/** Only http and https addresses become links; anything else (javascript:, data:) is shown as text. */
export function link(address, text) {
  let safe = null;
  try {
    const parsed = new URL(address);
    if (parsed.protocol === "https:" || parsed.protocol === "http:") safe = parsed.href;
  } catch { /* no address */ }
  if (!safe) return h("span", null, `${text}: ${address}`);
  return h("a", { href: safe, rel: "noopener noreferrer", target: "_blank" }, text);
}

/** Text in which `a command` stands between back ticks, as nodes. */
export function prose(text) {
  return String(text).split(/`([^`]+)`/).map((part, i) => (i % 2 ? h("code", null, part) : part));
}

/**
 * Makes `old` look like `fresh` and keeps what can stay: focus, scroll position, a plot under the pointer.
 * Nodes pair up by position, tag and data-key. A node with a `widget` keeps its inside and takes the new data.
 */
export function morph(old, fresh) {
  const wanted = [...fresh.childNodes];
  let at = old.firstChild;
  for (const next of wanted) {
    if (at && alike(at, next)) {
      const rest = at.nextSibling;
      update(at, next);
      at = rest;
    } else {
      const later = at && keyOf(next) ? findKey(at, next) : null;
      if (later) {
        old.insertBefore(later, at);
        update(later, next);
      } else {
        old.insertBefore(next, at);
      }
    }
  }
  while (at) {
    const rest = at.nextSibling;
    at.remove();
    at = rest;
  }
}

const keyOf = (node) => (node.dataset ? node.dataset.key : undefined);

function alike(a, b) {
  return a.nodeType === b.nodeType && a.nodeName === b.nodeName && keyOf(a) === keyOf(b) && !a.widget === !b.widget;
}

function findKey(from, wanted) {
  for (let node = from; node; node = node.nextSibling) if (alike(node, wanted)) return node;
  return null;
}

function update(old, fresh) {
  if (old.nodeType === Node.TEXT_NODE) {
    if (old.data !== fresh.data) old.data = fresh.data;
    return;
  }
  if (old.widget) {
    old.widget.set(fresh.widget.data);
    return;
  }
  for (const { name } of [...old.attributes]) {
    if (!fresh.hasAttribute(name) && !(name === "open" && old.nodeName === "DETAILS")) old.removeAttribute(name);
  }
  for (const { name, value } of [...fresh.attributes]) {
    if (name === "open" && old.nodeName === "DETAILS") continue;
    if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  for (const name of ["onclick", "onchange", "onsubmit"]) if (old[name] !== fresh[name]) old[name] = fresh[name];
  if (old.nodeName === "SELECT" || old.nodeName === "INPUT") return;
  morph(old, fresh);
}
