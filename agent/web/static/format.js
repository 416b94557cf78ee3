// Numbers and times as a tired reader wants them.

export const settings = { utc: false, skew: 0 };

/** Seconds on the daemon's clock. */
export const now = () => Date.now() / 1000 - settings.skew;

/** Seconds of an RFC 3339 text, or null. */
export function at(text) {
  if (text === null || text === undefined || text === "") return null;
  const value = Date.parse(text) / 1000;
  return Number.isNaN(value) ? null : value;
}

const two = (n) => String(n).padStart(2, "0");

/** 195 -> "3m 15s"; 93784 -> "1d 2h". */
export function duration(seconds) {
  if (seconds === null || !Number.isFinite(seconds)) return "–";
  const total = Math.max(0, Math.round(seconds));
  if (total < 60) return `${total}s`;
  const [d, hh, m, sec] = [Math.floor(total / 86400), Math.floor(total / 3600) % 24, Math.floor(total / 60) % 60, total % 60];
  if (d) return `${d}d ${hh}h`;
  if (hh) return `${hh}h ${two(m)}m`;
  return `${m}m ${two(sec)}s`;
}

/** The time of day of a point in time, with the date when it is another day than today. */
export function clock(seconds, withSeconds = true) {
  if (seconds === null) return "–";
  const t = new Date(seconds * 1000);
  const today = new Date(now() * 1000);
  const u = settings.utc;
  const day = u
    ? `${t.getUTCFullYear()}-${two(t.getUTCMonth() + 1)}-${two(t.getUTCDate())}`
    : `${t.getFullYear()}-${two(t.getMonth() + 1)}-${two(t.getDate())}`;
  const sameDay = u ? t.toISOString().slice(0, 10) === today.toISOString().slice(0, 10) : t.toDateString() === today.toDateString();
  const [hh, mm, ss] = u ? [t.getUTCHours(), t.getUTCMinutes(), t.getUTCSeconds()] : [t.getHours(), t.getMinutes(), t.getSeconds()];
  const time = `${two(hh)}:${two(mm)}${withSeconds ? `:${two(ss)}` : ""}`;
  return sameDay ? time : `${day} ${time}`;
}

export const iso = (seconds) => (seconds === null ? "" : new Date(seconds * 1000).toISOString().replace(".000Z", "Z"));

/** 4100 -> "4.1k", 0.0349 -> "0.03"; null -> "–". */
export function number(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  for (const [limit, letter] of [[1e9, "G"], [1e6, "M"], [1e4, "k"]]) {
    if (size >= limit) {
      const scaled = value / (letter === "k" ? 1e3 : limit);
      return `${scaled >= 100 ? Math.round(scaled) : Math.round(scaled * 10) / 10}${letter}`;
    }
  }
  if (Number.isInteger(value) || size >= 100) return String(Math.round(value));
  return size >= 10 ? value.toFixed(1).replace(/\.0$/, "") : value.toFixed(2).replace(/\.?0+$/, "");
}

export const percent = (value) => (value === null || value === undefined ? "–" : `${Math.round(value * 100)}%`);

export function bytes(value) {
  for (const [limit, unit] of [[2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]]) {
    if (value >= limit) return `${(value / limit).toFixed(value / limit >= 10 ? 0 : 1)} ${unit}`;
  }
  return `${value} B`;
}

/** "token_budget_deadlock" -> "token budget deadlock". */
export const words = (name) => String(name).replaceAll("_", " ");

export const plural = (n, one, many) => `${number(n)} ${n === 1 ? one : many || `${one}s`}`;
