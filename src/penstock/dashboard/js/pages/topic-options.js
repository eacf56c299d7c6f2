// The options of a topic, and changing them.
import { patch, url } from "../api.js";
import { FormDialog } from "../components/dialog.js";
import { Choice, Field } from "../components/fields.js";
import { Icon } from "../components/icons.js";
import { bytes, lane, number, shortDuration } from "../format.js";
import { html, useState } from "../html.js";
import { may } from "../store.js";

// Name, kind, what it means. Those of the kind "fixed" stay as they were made.
const OPTIONS = [
  ["partitions", "fixed", "How many ordered logs the topic has"],
  ["spread", "fixed", "Over how many shards its partitions are dealt"],
  ["order", "fixed", "lane: by lane and offset; key: also one message of a key at a time"],
  ["retention_age", "duration", "Settled messages older than this go; empty: never"],
  ["retention_bytes", "size", "When its segments take more than this, the oldest go; empty: no limit"],
  ["archive", "text", "A directory that expired segments move to, instead of being deleted"],
  ["protect_unacked", "yes", "Retention keeps what some group has not finished with"],
  ["visibility_timeout", "duration", "How long a delivered message is leased to its consumer"],
  ["max_deliveries", "whole", "After so many failed deliveries a message is a dead letter"],
  ["retry_backoff", "duration", "How long a failed message waits the first time; doubles each time"],
  ["retry_backoff_max", "duration", "The longest that a failed message waits"],
  ["dead_letter_lapsed", "yes", "A message whose time to live ended goes to the dead letters"],
  ["lanes", "lanes", "Which lane goes first: the lowest number always, or each by its weight"],
  ["lane_weights", "weights", "The weights of weighted lanes, such as high=5, low=1"],
  ["max_backlog", "whole", "Publishes are refused while the slowest group is so far behind; empty: no limit"],
  ["backlog_groups", "groups", "Which groups max_backlog counts: those of consumers only, or replays and checkpoint groups too"],
  ["max_delay", "duration", "The longest delay that a message may have"],
  ["dedupe_window", "duration", "How long a dedupe id is remembered"],
];
const OPTIONAL = new Set(["retention_age", "retention_bytes", "archive", "max_backlog"]);

const weightsOf = (value) => (Array.isArray(value) ? value : Object.entries(value ?? {})).map(([name, weight]) => [lane(Number.isNaN(Number(name)) ? name : Number(name)), weight]);

function shown(kind, value) {
  if (value === null || value === undefined) return "none";
  if (kind === "duration") return shortDuration(value);
  if (kind === "size") return bytes(value);
  if (kind === "yes") return value ? "yes" : "no";
  if (kind === "weights") return weightsOf(value).map((pair) => pair.join("=")).join(", ") || "none";
  return typeof value === "number" ? number(value) : String(value);
}

export function TopicOptions({ topic }) {
  const [editing, edit] = useState(false);
  return html`<section class="card">
    <header>
      <h2>Options</h2>
      <span class="grow"></span>
      ${may("admin") ? html`<button type="button" class="small" onClick=${() => edit(true)}><${Icon} name="edit" />Change…</button>` : null}
    </header>
    <dl class="facts long">
      ${OPTIONS.map(([name, kind, text]) => html`<div key=${name}><dt><code>${name}</code><small>${text}</small></dt><dd class="num">${shown(kind, topic.config[name])}</dd></div>`)}
    </dl>
    ${editing ? html`<${Edit} topic=${topic} close=${() => edit(false)} />` : null}
  </section>`;
}

function asText(kind, value) {
  if (value === null || value === undefined) return "";
  if (kind === "duration") return shortDuration(value);
  if (kind === "weights") return weightsOf(value).map((pair) => pair.join("=")).join(", ");
  return String(value);
}

function fromText(name, kind, text) {
  const given = text.trim();
  if (kind === "weights") return weightsFrom(given);
  if (given === "" && OPTIONAL.has(name)) return null;
  if (kind === "yes") return given === "true";
  return /^\d+(\.\d+)?$/.test(given) && kind !== "text" ? Number(given) : given;
}

function weightsFrom(text) {
  const pairs = text.split(",").filter((part) => part.trim() !== "").map((part) => part.split("=").map((side) => side.trim()));
  return Object.fromEntries(pairs.map(([name, weight]) => [name, Number(weight)]));
}

function Edit({ topic, close }) {
  const changeable = OPTIONS.filter(([, kind]) => kind !== "fixed");
  const before = Object.fromEntries(changeable.map(([name, kind]) => [name, asText(kind, topic.config[name])]));
  const [start] = useState(before);
  const [texts, setTexts] = useState(start);
  const changed = changeable.filter(([name]) => texts[name] !== start[name]);
  const change = (name) => (text) => setTexts((old) => ({ ...old, [name]: text }));
  const submit = () => patch(url`/v1/topics/${topic.name}`, Object.fromEntries(changed.map(([name, kind]) => [name, fromText(name, kind, texts[name])])));
  return html`<${FormDialog} title="Change options" action=${changed.length ? `Change ${changed.length}` : "Change"} close=${close} submit=${submit} done="Changed." disabled=${changed.length === 0} wide>
    <div class="grid">
      ${changeable.map(([name, kind, hint]) => {
        const common = { key: name, label: name, hint, value: texts[name], change: change(name) };
        if (kind === "yes") return html`<${Choice} ...${common} options=${[["true", "yes"], ["false", "no"]]} />`;
        if (kind === "lanes") return html`<${Choice} ...${common} options=${[["strict", "strict"], ["weighted", "weighted"]]} />`;
        if (kind === "groups") return html`<${Choice} ...${common} options=${[["live", "live"], ["all", "all"]]} />`;
        return html`<${Field} ...${common} />`;
      })}
    </div>
  <//>`;
}
