// Fields of forms.
import { get, withQuery } from "../api.js";
import { PRIORITIES, parseDuration } from "../format.js";
import { html, useEffect, useId, useState } from "../html.js";

// A field with its label above and a hint below. `make` gets the attributes that join the three.
function Labelled({ label, hint, make }) {
  const id = useId();
  return html`<div class="field">
    <label for=${id}>${label}</label>
    ${make({ id, "aria-describedby": hint ? `${id}-hint` : null })}
    ${hint ? html`<small id=${`${id}-hint`}>${hint}</small>` : null}
  </div>`;
}

export function Field({ label, value, change, hint = null, type = "text", mono = false, ...rest }) {
  const make = (joined) => html`<input
    type=${type}
    class=${mono ? "mono" : ""}
    value=${value}
    autocomplete="off"
    spellcheck="false"
    onInput=${(event) => change(event.target.value)}
    ...${joined}
    ...${rest}
  />`;
  return html`<${Labelled} label=${label} hint=${hint} make=${make} />`;
}

export function Area({ label, value, change, hint = null, rows = 8, ...rest }) {
  const make = (joined) => html`<textarea
    class="mono"
    rows=${rows}
    spellcheck="false"
    value=${value}
    onInput=${(event) => change(event.target.value)}
    ...${joined}
    ...${rest}
  ></textarea>`;
  return html`<${Labelled} label=${label} hint=${hint} make=${make} />`;
}

export function Choice({ label, value, change, options, hint = null }) {
  const make = (joined) => html`<select value=${value} onChange=${(event) => change(event.target.value)} ...${joined}>
    ${options.map(([name, text]) => html`<option key=${name} value=${name} selected=${name === value}>${text}</option>`)}
  </select>`;
  return html`<${Labelled} label=${label} hint=${hint} make=${make} />`;
}

// One of a few, side by side.
export function Segments({ label, value, change, options }) {
  const name = useId();
  return html`<fieldset class="segments">
    <legend class="hidden">${label}</legend>
    ${options.map(([id, text]) => html`<label key=${id}>
      <input type="radio" name=${name} checked=${id === value} onChange=${() => change(id)} /><span>${text}</span>
    </label>`)}
  </fieldset>`;
}

export function PriorityField({ value, change }) {
  const named = Object.values(PRIORITIES).map(String).includes(value);
  const [own, setOwn] = useState(!named);
  return html`<div class="pair">
    <${Choice}
      label="Priority"
      value=${own ? "own" : value}
      change=${(chosen) => {
        setOwn(chosen === "own");
        if (chosen !== "own") change(chosen);
      }}
      options=${[...Object.entries(PRIORITIES).map(([name, lane]) => [String(lane), `${name} (${lane})`]), ["own", "another…"]]}
    />
    ${own ? html`<${Field} label="Lane, 0 first to 255 last" type="number" min="0" max="255" value=${value} change=${change} />` : null}
  </div>`;
}

// A duration as people write it; says so while it is none.
export function DurationField({ label, value, change, hint = "such as 90s, 20m or 1h30m", ...rest }) {
  const wrong = Number.isNaN(parseDuration(value));
  return html`<${Field}
    label=${label}
    value=${value}
    change=${change}
    hint=${wrong ? "Not a duration: write 250ms, 30s, 1h30m or 7d." : hint}
    aria-invalid=${wrong}
    ...${rest}
  />`;
}

// The name of a topic, with suggestions from the server.
export function TopicField({ value, change, ...rest }) {
  const [names, setNames] = useState([]);
  const list = useId();
  useEffect(() => {
    const controller = new AbortController();
    const timer = setTimeout(async () => {
      try {
        const found = await get(withQuery("/v1/topics", { search: value, limit: 12 }), controller.signal);
        setNames(found.topics.map((topic) => topic.name));
      } catch {
        // It is only a suggestion.
      }
    }, 200);
    return () => {
      clearTimeout(timer);
      controller.abort();
    };
  }, [value]);
  return html`<${Field} label="Topic" value=${value} change=${change} list=${list} required ...${rest} />
    <datalist id=${list}>${names.map((name) => html`<option key=${name} value=${name} />`)}</datalist>`;
}
