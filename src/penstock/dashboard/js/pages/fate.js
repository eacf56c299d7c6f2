// What became of the messages of a group, as one bar.
import { exact } from "../format.js";
import { html } from "../html.js";

export const FATES = [
  ["acked", "acked"],
  ["leased", "in flight"],
  ["ready", "ready"],
  ["retrying", "retrying"],
  ["delayed", "delayed"],
  ["dead", "dead"],
  ["withdrawn", "withdrawn"],
  ["lapsed", "lapsed"],
  ["skipped", "skipped"],
  ["lost", "lost"],
];

export function Fate({ group }) {
  const parts = FATES.map(([name, text]) => [name, text, group[name] ?? 0]).filter(([, , count]) => count > 0);
  const total = parts.reduce((sum, [, , count]) => sum + count, 0);
  const said = parts.map(([, text, count]) => `${exact(count)} ${text}`).join(", ") || "no messages";
  return html`<div class="fate" role="img" aria-label=${said} title=${said}>
    ${parts.map(([name, , count]) => html`<i key=${name} class="fate-${name}" style=${{ width: `${Math.max((count / total) * 100, 1.5)}%` }}></i>`)}
  </div>`;
}
