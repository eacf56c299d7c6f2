// The content of a message, whatever it is. All of it is hostile until shown as text.
import { bytes, visible } from "../format.js";
import { html, useState } from "../html.js";
import { Copy } from "./figures.js";
import { Segments } from "./fields.js";

const SHOWN = 20_000;
const BLOCK = 8_000;
const PREVIEW = 160;

// A line of it, for tables.
export function Preview({ text, encoding }) {
  if (text === null || text === undefined) return html`<span class="muted">–</span>`;
  const short = text.slice(0, PREVIEW);
  return html`<bdi class="preview mono">${encoding === "base64" ? html`<span class="badge">base64</span> ` : null}${visible(short).replace(/\s+/g, " ")}${text.length > PREVIEW ? "…" : ""}</bdi>`;
}

function asJson(text) {
  if (!/^\s*[[{"]/.test(text)) return null;
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return null;
  }
}

function asBytes(text) {
  try {
    return Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
  } catch {
    return new Uint8Array();
  }
}

// Sixteen bytes a line: where, in hexadecimal, and as text where it is text.
function asHex(data) {
  const lines = [];
  for (let start = 0; start < Math.min(data.length, 65_536); start += 16) {
    const row = [...data.slice(start, start + 16)];
    const codes = row.map((byte) => byte.toString(16).padStart(2, "0")).join(" ");
    const text = row.map((byte) => (byte > 31 && byte < 127 ? String.fromCharCode(byte) : "·")).join("");
    lines.push(`${start.toString(16).padStart(6, "0")}  ${codes.padEnd(47)}  ${text}`);
  }
  return lines.join("\n");
}

function formsOf(value, encoding) {
  if (encoding === "base64") return { hex: asHex(asBytes(value)), base64: value };
  const json = asJson(value);
  return json === null ? { text: visible(value) } : { json, text: visible(value) };
}

const NAMES = { json: "JSON", text: "Text", hex: "Hex", base64: "Base64" };

export function Content({ value, encoding, size = null }) {
  const [form, setForm] = useState(null);
  const [all, setAll] = useState(false);
  const forms = formsOf(value, encoding);
  const names = Object.keys(forms);
  const shownForm = names.includes(form) ? form : names[0];
  const text = forms[shownForm];
  const cut = !all && text.length > SHOWN;
  return html`<div class="content">
    <div class="content-bar">
      ${names.length > 1
        ? html`<${Segments} label="Show as" value=${shownForm} change=${setForm} options=${names.map((name) => [name, NAMES[name]])} />`
        : html`<span class="badge">${NAMES[shownForm]}</span>`}
      <span class="muted">${size === null ? "" : bytes(size)}</span>
      <span class="grow"></span>
      <${Copy} text=${value} />
    </div>
    <pre class="value" tabindex="0" dir="auto">${cut ? text.slice(0, SHOWN) : shown(text, shownForm)}</pre>
    ${cut
      ? html`<div class="more">
          <span class="muted">The first ${bytes(SHOWN)} of ${bytes(text.length)}.</span>
          <button type="button" class="small" onClick=${() => setAll(true)}>Show all</button>
        </div>`
      : null}
  </div>`;
}

function shown(text, form) {
  if (text === "") return html`<span class="muted">(empty)</span>`;
  if (text.length > SHOWN) return inBlocks(text);
  return form === "json" ? coloured(text) : text;
}

// Blocks that the browser lays out when they come into sight: a megabyte in one line would take seconds.
function inBlocks(text) {
  const blocks = [];
  for (let start = 0; start < text.length; ) {
    const limit = start + BLOCK;
    const line = limit < text.length ? text.lastIndexOf("\n", limit) : -1;
    const end = line > start ? line : limit;
    blocks.push(html`<div key=${start} class="block">${text.slice(start, end)}</div>`);
    start = line > start ? end + 1 : end;
  }
  return blocks;
}

const TOKEN = /("(?:\\.|[^"\\])*")(\s*:)?|(-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)|\b(true|false|null)\b/g;

// Pretty JSON with its names, texts and numbers in colours: as elements, never as markup.
function coloured(text) {
  const parts = [];
  let end = 0;
  for (const match of text.matchAll(TOKEN)) {
    parts.push(text.slice(end, match.index));
    const [whole, string, colon, numeral] = match;
    const kind = string === undefined ? (numeral === undefined ? "word" : "numeral") : colon ? "member" : "string";
    parts.push(html`<span class="json-${kind}">${visible(string ?? whole)}</span>`, colon ?? "");
    end = match.index + whole.length;
  }
  parts.push(text.slice(end));
  return parts;
}
