// One kind of plot: lines and areas over time, shaded spans, numbered markers, and a read-out under the pointer
// (or the arrow keys). Plots inside one element of class "plots" share their cursor.
import { h, s } from "./dom.js";
import { clock, number, percent } from "./format.js";

const LEFT = 46, RIGHT = 10, TOP = 18, BOTTOM = 20;

/**
 * data: {title, unit, from, to, height, series: [{name, kind, points: [[t, v|null]], area}],
 *        bands: [{from, to, kind}], markers: [{t, text, kind, title}], max}
 */
export function plot(data) {
  const root = h("figure", { class: "plot" });
  root.widget = new Plot(root, data);
  return root;
}

/** A line without axes, for a card. */
export function sparkline(data) {
  return plot({ ...data, bare: true });
}

class Plot {
  constructor(root, data) {
    this.root = root;
    this.cursor = null;
    this.width = 0;
    this.caption = h("figcaption");
    this.svg = s("svg", { tabindex: data.bare ? null : "0", role: "img" });
    root.append(this.caption, this.svg);
    if (data.bare) root.classList.add("bare");
    else this.listen();
    new ResizeObserver(([entry]) => {
      const width = Math.round(entry.contentRect.width);
      if (width && width !== this.width) {
        this.width = width;
        this.draw();
      }
    }).observe(root);
    this.set(data);
  }

  set(data) {
    this.data = data;
    if (this.width) this.draw();
  }

  listen() {
    const move = (event) => {
      const box = this.svg.getBoundingClientRect();
      this.share(this.time(event.clientX - box.left));
    };
    this.svg.addEventListener("pointermove", move);
    this.svg.addEventListener("pointerdown", move);
    this.svg.addEventListener("pointerleave", (event) => event.pointerType === "mouse" && this.share(null));
    this.svg.addEventListener("blur", () => this.share(null));
    this.svg.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10 }[event.key];
      if (event.key === "Escape") return this.share(null);
      if (!step) return undefined;
      event.preventDefault();
      const { from, to } = this.data;
      const start = this.cursor === null ? to : this.cursor;
      return this.share(Math.min(to, Math.max(from, start + (step * (to - from)) / 100)));
    });
  }

  /** Sets the cursor of every plot of the group. */
  share(time) {
    const group = this.root.closest(".plots");
    const plots = group ? group.querySelectorAll(".plot") : [this.root];
    for (const node of plots) {
      if (node.widget && !node.widget.data.bare) {
        node.widget.cursor = time;
        node.widget.point();
      }
    }
  }

  x(t) {
    const { from, to, bare } = this.data;
    const left = bare ? 0 : LEFT, right = bare ? 0 : RIGHT;
    return left + ((t - from) / (to - from || 1)) * (this.width - left - right);
  }

  time(x) {
    const { from, to } = this.data;
    return Math.min(to, Math.max(from, from + ((x - LEFT) / (this.width - LEFT - RIGHT)) * (to - from)));
  }

  show(value) {
    return this.data.unit === "ratio" ? percent(value) : number(value);
  }

  draw() {
    const { data } = this;
    const height = data.height || 120;
    const top = data.bare ? 2 : TOP, bottom = data.bare ? 2 : BOTTOM;
    let peak = 0;
    for (const { points } of data.series) for (const [, v] of points) if (v !== null && v > peak) peak = v;
    const ceiling = data.max || nice(peak || 1);
    const y = (v) => height - bottom - (Math.min(v, ceiling) / ceiling) * (height - top - bottom);
    this.y = y;
    const parts = [];
    for (const band of data.bands || []) {
      const a = this.x(Math.max(band.from, data.from)), b = this.x(Math.min(band.to, data.to));
      if (b > a) parts.push(s("rect", { class: `band ${band.kind}`, x: a, y: top, width: b - a, height: height - top - bottom }));
    }
    if (!data.bare) parts.push(...this.axes(height, ceiling, y));
    for (const series of data.series) {
      const runs = split(series.points.filter(([t]) => t >= data.from - 1 && t <= data.to + 1));
      for (const run of runs) {
        const line = run.map(([t, v]) => `${this.x(t).toFixed(1)} ${y(v).toFixed(1)}`);
        if (series.area) {
          const base = (height - bottom).toFixed(1);
          parts.push(s("path", { class: `area ${series.kind}`, d: `M${this.x(run[0][0]).toFixed(1)} ${base}L${line.join("L")}L${this.x(run.at(-1)[0]).toFixed(1)} ${base}Z` }));
        }
        parts.push(run.length === 1
          ? s("circle", { class: `dot ${series.kind}`, cx: this.x(run[0][0]), cy: y(run[0][1]), r: 2 })
          : s("path", { class: `line ${series.kind}`, d: `M${line.join("L")}` }));
      }
    }
    if (!data.bare) parts.push(...this.markers(top, height - bottom));
    this.pointer = s("g", { class: "pointer" });
    parts.push(this.pointer);
    this.svg.setAttribute("width", this.width);
    this.svg.setAttribute("height", height);
    this.svg.setAttribute("viewBox", `0 0 ${this.width} ${height}`);
    this.svg.setAttribute("aria-label", this.describe());
    this.svg.replaceChildren(...parts);
    this.height = height;
    this.bottom = bottom;
    this.top = top;
    this.point();
  }

  axes(height, ceiling, y) {
    const parts = [];
    for (const share of [0, 0.5, 1]) {
      const at = y(ceiling * share);
      parts.push(s("line", { class: "grid", x1: LEFT, x2: this.width - RIGHT, y1: at, y2: at }));
      parts.push(s("text", { class: "tick", x: LEFT - 6, y: at + 3.5, "text-anchor": "end" }, this.show(ceiling * share)));
    }
    const { from, to } = this.data;
    const step = timeStep((to - from) / Math.max(2, Math.floor((this.width - LEFT) / 90)));
    for (let t = Math.ceil(from / step) * step; t <= to; t += step) {
      const at = this.x(t);
      if (at > this.width - 24 || at < LEFT + 12) continue;
      parts.push(s("line", { class: "tickmark", x1: at, x2: at, y1: height - BOTTOM, y2: height - BOTTOM + 4 }));
      parts.push(s("text", { class: "tick", x: at, y: height - 5, "text-anchor": "middle" }, clock(t, step < 60)));
    }
    return parts;
  }

  markers(top, bottom) {
    const parts = [];
    let last = -100, row = 0;
    const sorted = [...(this.data.markers || [])].filter((m) => m.t >= this.data.from && m.t <= this.data.to).sort((a, b) => a.t - b.t);
    for (const marker of sorted) {
      const x = this.x(marker.t);
      row = x - last < 17 ? row + 1 : 0;
      last = row ? last : x;
      const cx = row ? last + row * 17 : x;
      parts.push(s("line", { class: `mark ${marker.kind}`, x1: x, x2: x, y1: top, y2: bottom }));
      parts.push(s("g", null,
        s("title", null, marker.title || marker.text),
        s("circle", { class: `badge ${marker.kind}`, cx, cy: top - 8, r: 8 }),
        s("text", { class: "badge-text", x: cx, y: top - 4.5, "text-anchor": "middle" }, marker.text)));
    }
    return parts;
  }

  /** The read-out: the values at the cursor, else the newest. */
  point() {
    const { data } = this;
    const values = data.series.map((series) => ({ series, value: valueAt(series.points, this.cursor === null ? data.to : this.cursor) }));
    const when = this.cursor === null ? "" : clock(this.cursor);
    if (!data.bare) {
      this.caption.replaceChildren(
        h("b", null, data.title),
        ...values.map(({ series, value }) => h("span", { class: `key ${series.kind}` }, `${series.name} `, h("b", null, this.show(value)))),
        h("span", { class: "when" }, data.unit === "ratio" ? when : `${when || data.unit}`));
    }
    if (!this.pointer) return;
    if (this.cursor === null) return void this.pointer.replaceChildren();
    const x = this.x(this.cursor);
    this.pointer.replaceChildren(
      s("line", { class: "cursor", x1: x, x2: x, y1: this.top, y2: this.height - this.bottom }),
      ...values.filter(({ value }) => value !== null).map(({ series, value }) => s("circle", { class: `dot ${series.kind}`, cx: x, cy: this.y(value), r: 3.5 })));
  }

  describe() {
    const ends = this.data.series.map(({ name, points }) => {
      const seen = points.filter(([, v]) => v !== null);
      return seen.length ? `${name} from ${this.show(seen[0][1])} to ${this.show(seen.at(-1)[1])}` : `${name}: no data`;
    });
    return `${this.data.title || ""}: ${ends.join(", ")}`;
  }
}

/** The value of the newest point not later than `t`; null in a gap and where points are too far away. */
function valueAt(points, t) {
  let low = 0, high = points.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (points[middle][0] <= t) low = middle + 1;
    else high = middle;
  }
  return low ? points[low - 1][1] : null;
}

/** Runs of points without a gap (a null, or a silence four times as long as the usual step). */
export function split(points) {
  const steps = points.slice(1).map(([t], i) => t - points[i][0]).sort((a, b) => a - b);
  const limit = steps.length ? Math.max(steps[steps.length >> 1] * 4, 1) : Infinity;
  const runs = [];
  let run = [];
  let before = null;
  for (const [t, v] of points) {
    if (v === null || (before !== null && t - before > limit)) {
      if (run.length) runs.push(run);
      run = [];
    }
    if (v !== null) run.push([t, v]);
    before = t;
  }
  if (run.length) runs.push(run);
  return runs;
}

/** A round number at or a little above `value`: the top of an axis. */
export function nice(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  for (const factor of [1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10]) if (value <= factor * power * 1.0001) return factor * power;
  return 10 * power;
}

function timeStep(atLeast) {
  for (const step of [5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200]) if (step >= atLeast) return step;
  return 86400;
}
