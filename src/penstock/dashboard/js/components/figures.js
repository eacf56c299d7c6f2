// Numbers, times and names as they stand in tables and tiles: short, with the exact value on hover.
import { ago, bytes, duration, exact, lane, number, time } from "../format.js";
import { html, useEffect, useState } from "../html.js";
import { act } from "../poll.js";
import { href, messageHref, topicHref } from "../router.js";
import { Icon } from "./icons.js";

export function Num({ value, quiet = false }) {
  const zero = quiet && value === 0 ? "zero" : "";
  return html`<span class="num ${zero}" title=${typeof value === "number" ? exact(value) : null}>${number(value)}</span>`;
}

// Offsets: every digit counts.
export function Offset({ value }) {
  return html`<span class="num">${exact(value)}</span>`;
}

export function Bytes({ value }) {
  return html`<span class="num" title=${typeof value === "number" ? `${exact(value)} bytes` : null}>${bytes(value)}</span>`;
}

export function Lasting({ seconds }) {
  return html`<span class="num" title=${typeof seconds === "number" ? `${seconds} s` : null}>${duration(seconds)}</span>`;
}

export function Time({ value, fraction = false }) {
  if (!value) return html`<span class="num">–</span>`;
  return html`<time class="num" datetime=${value} title=${`${value}, ${ago(value)}`}>${time(value, fraction)}</time>`;
}

// How long ago, or how soon; counts on by itself.
export function Ago({ value }) {
  const [, tick] = useState(0);
  useEffect(() => {
    const timer = setInterval(() => tick((count) => count + 1), 1000);
    return () => clearInterval(timer);
  }, []);
  if (!value) return html`<span class="num">–</span>`;
  return html`<time class="num" datetime=${value} title=${`${time(value)}, ${value}`}>${ago(value)}</time>`;
}

export function Lane({ priority }) {
  return html`<span class="badge lane-${lane(priority)}" title=${`priority ${priority}`}>${lane(priority)}</span>`;
}

export function TopicLink({ name }) {
  return html`<a class="name" href=${topicHref(name)} title=${name}>${name}</a>`;
}

export function GroupLink({ name }) {
  return html`<a class="name" href=${href(["groups", name])} title=${name}>${name}</a>`;
}

// What is particular about a group: what kind it is, and its settings.
export function GroupBadges({ group }) {
  const badges = Object.entries(group.settings).map(([name, value]) => [value === true ? name : `${name} ${value}`, "A setting of this group"]);
  if (group.kind === "checkpoint") badges.push(["checkpoint", "It shows how far a reader is that keeps its own position"]);
  return badges.map(([text, hint]) => html` <span key=${text} class="badge" title=${hint}>${text}</span>`);
}

export function MessageLink({ id }) {
  return html`<a class="name mono" href=${messageHref(id)} title=${id}>${id}</a>`;
}

export function Copy({ text, label = "Copy" }) {
  return html`<button type="button" class="quiet small" onClick=${() => act(() => navigator.clipboard.writeText(text), "Copied.")}>
    <${Icon} name="copy" />${label}
  </button>`;
}

export function Tile({ label, children, note = null, tone = "" }) {
  return html`<div class="tile ${tone}">
    <div class="tile-label">${label}</div>
    <div class="tile-value">${children}</div>
    <div class="tile-note">${note}</div>
  </div>`;
}
