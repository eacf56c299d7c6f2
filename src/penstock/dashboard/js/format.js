// Numbers, sizes, durations and times for people.

const exactly = new Intl.NumberFormat("en");
const BYTES = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
const UNITS = { us: 1e-6, ms: 1e-3, s: 1, m: 60, h: 3600, d: 86400, w: 604800 };
export const PRIORITIES = { critical: 0, high: 64, normal: 128, low: 192, background: 255 };

export const exact = (value) => exactly.format(value);

const known = (value) => typeof value === "number" && Number.isFinite(value);

// Three digits: 7.25, 72.5, 725.
function digits(value) {
  if (value >= 100) return value.toFixed(0);
  return value >= 10 ? value.toFixed(1).replace(/\.0$/, "") : value.toFixed(2).replace(/\.?0+$/, "");
}

export function number(value) {
  if (!known(value)) return "–";
  const size = Math.abs(value);
  if (size < 10_000) return Number.isInteger(value) ? exact(value) : digits(value);
  for (const [unit, factor] of [["k", 1e3], ["M", 1e6], ["G", 1e9], ["T", 1e12]]) {
    if (size < factor * 999.5) return `${digits(value / factor)}${unit}`;
  }
  return exact(Math.round(value));
}

export const rate = (value) => (known(value) ? number(value < 10 ? value : Math.round(value)) : "–");

export function bytes(value) {
  if (!known(value)) return "–";
  let size = value;
  let unit = 0;
  while (size >= 1023.5 && unit < BYTES.length - 1) {
    size /= 1024;
    unit += 1;
  }
  return `${unit === 0 ? size : digits(size)} ${BYTES[unit]}`;
}

export function duration(seconds) {
  if (!known(seconds)) return "–";
  const size = Math.abs(seconds);
  if (size === 0) return "0 s";
  if (size < 1e-3) return `${digits(seconds * 1e6)} µs`;
  if (size < 0.9995) return `${digits(seconds * 1e3)} ms`;
  if (size < 60) return `${digits(seconds)} s`;
  const parts = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];
  const first = parts.findIndex(([, length]) => size >= length);
  const [unit, length] = parts[first];
  const whole = Math.floor(size / length);
  const next = parts[first + 1];
  const rest = next ? Math.floor((size - whole * length) / next[1]) : 0;
  return rest && whole < 100 ? `${whole} ${unit} ${rest} ${next[0]}` : `${whole} ${unit}`;
}

export const milliseconds = (value) => (known(value) ? duration(value / 1000) : "–");

// One unit only, for axes.
export function shortMilliseconds(value) {
  const seconds = value / 1000;
  for (const [unit, length] of [["d", 86400], ["h", 3600], ["min", 60]]) {
    if (seconds >= length) return `${digits(seconds / length)} ${unit}`;
  }
  return milliseconds(value);
}

// As the API and the command line take it: 1h30m, 7d, 250ms.
export function shortDuration(seconds) {
  if (seconds === null || seconds === undefined) return "never";
  if (seconds === 0) return "0s";
  if (seconds < 1) return `${Number((seconds * 1000).toFixed(3))}ms`;
  let left = seconds;
  let text = "";
  for (const unit of ["d", "h", "m"]) {
    const count = Math.floor(left / UNITS[unit]);
    if (count) text += `${count}${unit}`;
    left -= count * UNITS[unit];
  }
  left = Number(left.toFixed(3));
  return left ? `${text}${left}s` : text;
}

// Seconds, from 90, "90", "1h30m"; null when it says nothing, NaN when it is no duration.
export function parseDuration(text) {
  const given = text.trim();
  if (given === "") return null;
  if (/^\d+(\.\d+)?$/.test(given)) return Number(given);
  if (!/^(\d+(\.\d+)?(us|ms|s|m|h|d|w))+$/.test(given)) return NaN;
  return [...given.matchAll(/(\d+(?:\.\d+)?)(us|ms|s|m|h|d|w)/g)].reduce((sum, [, count, unit]) => sum + count * UNITS[unit], 0);
}

const CLOCK = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const DAY = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short" });
const YEAR = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", year: "numeric" });

// Local time: the clock today, with the day before it otherwise.
export function time(value, fraction = false) {
  const date = new Date(value);
  if (Number.isNaN(date.getTime())) return "–";
  const now = new Date();
  const clock = CLOCK.format(date) + (fraction ? `.${String(date.getMilliseconds()).padStart(3, "0")}` : "");
  if (date.toDateString() === now.toDateString()) return clock;
  return `${(date.getFullYear() === now.getFullYear() ? DAY : YEAR).format(date)} ${clock}`;
}

export function ago(value, nowMs = Date.now()) {
  const seconds = (nowMs - new Date(value).getTime()) / 1000;
  if (Number.isNaN(seconds)) return "–";
  if (Math.abs(seconds) < 1) return "now";
  const coarse = Math.abs(seconds) < 60 ? Math.round(seconds) : seconds;
  return seconds > 0 ? `${duration(coarse)} ago` : `in ${duration(-coarse)}`;
}

export function lane(priority) {
  const found = Object.entries(PRIORITIES).find(([, value]) => value === priority);
  return found ? found[0] : String(priority);
}

// For <input type="datetime-local">, in local time.
export function localInput(date) {
  return new Date(date.getTime() - date.getTimezoneOffset() * 60_000).toISOString().slice(0, 19);
}

export const isoFromInput = (text) => (text ? new Date(text).toISOString() : null);

// Text as it can be shown: what cannot be seen, or would turn the direction of writing around, becomes visible.
export function visible(text) {
  return text.replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b\u200c\u200e\u200f\u202a-\u202e\u2060-\u2069\ufeff]/g, (character) => {
    const code = character.codePointAt(0);
    return code < 0x20 ? String.fromCodePoint(0x2400 + code) : `⟨U+${code.toString(16).toUpperCase().padStart(4, "0")}⟩`;
  });
}

export function plural(count, one, many = `${one}s`) {
  return `${exact(count)} ${count === 1 ? one : many}`;
}
