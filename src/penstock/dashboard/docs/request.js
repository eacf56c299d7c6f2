// Trying an operation: a form, the same as a curl line, and what the server answers.
import { card, code, copyButton, h, icon, inline, json, pretty, say } from "./dom.js";

const TOKEN = "penstock-api-token";
const SHOWN_CHARACTERS = 400_000;
const UNFOLDED = 5;
const STREAM_MS = 30_000;
const JSON_TYPE = "application/json";
const STREAM_TYPE = "text/event-stream";
const FROM_HERE = { "X-Penstock": "1" }; // which pages of others cannot send: without it, nothing is taken by GET

let running = null;

// End what is under way: the reader went elsewhere.
export function stop() {
  running?.abort();
  running = null;
}

export function tryIt(operation, schemas) {
  const fields = operation.parameters.filter((parameter) => parameter.in !== "cookie").map((parameter) => parameterField(parameter, schemas));
  const body = operation.body ? bodyField(operation.body) : null;
  const token = tokenField(operation);
  const line = h("code", {});
  const needsToken = h("small", { class: "curl-note" }, inline("Set the token first: `read -rs PENSTOCK_TOKEN`"));
  const reply = h("div", { class: "reply", "aria-live": "polite" });
  const send = h("button", { type: "submit", class: operation.method === "delete" ? "danger" : "primary" }, icon("publish"), "Send");

  const request = () => requestOf(operation, fields, body, token?.value.trim() ?? "");
  const show = () => {
    line.textContent = curl(request());
    needsToken.hidden = !token?.value.trim();
  };
  const form = h(
    "form",
    {
      class: "try",
      novalidate: true,
      oninput: show,
      onchange: show,
      onsubmit: (event) => {
        event.preventDefault();
        if (complete(fields)) perform(request(), reply, send);
      },
    },
    parameterFields(fields),
    body?.element,
    token?.element,
    h("div", { class: "form-end" }, send),
  );
  show();
  return [
    card("Try it", form, reply),
    h(
      "section",
      { class: "card" },
      h("header", {}, h("h2", {}, "curl"), h("span", { class: "grow" }), copyButton(() => line.textContent, "Copy the curl line")),
      h("pre", { class: "value curl", tabindex: "0" }, line),
      needsToken,
    ),
  ];
}

function parameterField(parameter, schemas) {
  const { list } = schemas.choices(parameter.schema);
  const values = list.length === 1 ? (list[0].enum ?? (list[0].type === "boolean" ? [true, false] : null)) : null;
  const example = parameter.example ?? Object.values(parameter.examples ?? {})[0]?.value;
  const initial = parameter.required && example !== undefined ? String(example) : "";
  const preset = schemas.default(parameter.schema).replace(/^"|"$/g, "");
  const attributes = { name: parameter.name, "aria-required": parameter.required ? "true" : null, autocomplete: "off", spellcheck: "false" };
  const input = values
    ? h("select", attributes, parameter.required ? null : h("option", { value: "" }, preset ? `(${preset})` : ""), values.map((value) => h("option", { value: String(value) }, String(value))))
    : h("input", { ...attributes, class: "mono", placeholder: preset });
  if (initial) input.value = initial;
  input.addEventListener("input", () => input.removeAttribute("aria-invalid"));
  const mark = parameter.required ? h("abbr", { class: "required", title: "must be there" }, "*") : null;
  return { parameter, input, element: h("label", { class: "field" }, h("span", {}, parameter.name, mark, h("small", {}, ` ${parameter.in}`)), input) };
}

// Those that must be filled in first; many others are folded away.
function parameterFields(fields) {
  const [needed, others] = [true, false].map((required) => fields.filter(({ parameter }) => Boolean(parameter.required) === required));
  const grid = (list) => (list.length ? h("div", { class: "grid" }, list.map((field) => field.element)) : null);
  if (others.length <= UNFOLDED) return grid([...needed, ...others]);
  return [grid(needed), h("details", { class: "folded" }, h("summary", {}, `${others.length} more parameters`), grid(others))];
}

function bodyField(body) {
  const types = Object.keys(body.content);
  const area = h("textarea", { class: "mono", name: "body", rows: "8", spellcheck: "false", "aria-label": "Body" });
  const wrong = h("small", { class: "wrong", role: "alert" });
  const type = h("select", { name: "content-type", "aria-label": "Type of the body" }, types.map((name) => h("option", { value: name }, name)));
  const examples = h("select", { name: "example", "aria-label": "Example" });
  const check = () => {
    let problem = "";
    if (type.value === JSON_TYPE && area.value.trim()) {
      try {
        JSON.parse(area.value);
      } catch (error) {
        problem = `This is not JSON: ${error.message}`;
      }
    }
    wrong.textContent = problem;
    area.toggleAttribute("aria-invalid", false);
    if (problem) area.setAttribute("aria-invalid", "true");
  };
  const fill = () => {
    const found = Object.values(body.content[type.value].examples ?? {});
    const value = found[Number(examples.value) || 0]?.value;
    area.value = value === undefined ? "" : typeof value === "string" ? value : pretty(value);
    area.rows = Math.min(16, Math.max(4, area.value.split("\n").length + 1));
    check();
  };
  const choose = () => {
    const names = Object.entries(body.content[type.value].examples ?? {});
    examples.replaceChildren(...names.map(([name, example], index) => h("option", { value: String(index) }, example.summary ?? name)));
    examples.hidden = names.length < 2;
    fill();
  };
  type.hidden = types.length < 2;
  type.addEventListener("change", choose);
  examples.addEventListener("change", fill);
  area.addEventListener("input", check);
  choose();
  return { area, type, element: h("div", { class: "field" }, h("div", { class: "body-bar" }, h("span", {}, "Body"), h("small", {}, types.length < 2 ? types[0] : ""), type, examples), area, wrong) };
}

function tokenField(operation) {
  if (!operation.needsToken) return null;
  const input = h("input", { type: "password", name: "token", class: "mono", autocomplete: "off", placeholder: "where the server asks for one" });
  input.value = sessionStorage.getItem(TOKEN) ?? "";
  input.addEventListener("input", () => {
    if (input.value.trim()) sessionStorage.setItem(TOKEN, input.value.trim());
    else sessionStorage.removeItem(TOKEN);
  });
  const hint = h("small", {}, "Kept until this tab is closed. Without one, you are who you are in the dashboard.");
  return { element: h("label", { class: "field" }, h("span", {}, "Token"), input, hint), get value() { return input.value; } };
}

function complete(fields) {
  const missing = fields.filter(({ parameter, input }) => parameter.required && !input.value);
  for (const { input } of missing) input.setAttribute("aria-invalid", "true");
  missing[0]?.input.focus();
  if (missing.length) say(`${missing[0].parameter.name} must be filled in.`);
  return !missing.length;
}

// What is filled in, as a request.
function requestOf(operation, fields, body, token) {
  const query = [];
  const headers = {};
  let path = operation.path;
  for (const { parameter, input } of fields) {
    if (input.value === "") continue;
    if (parameter.in === "path") path = path.replace(`{${parameter.name}}`, () => encodeURIComponent(input.value));
    else if (parameter.in === "header") headers[parameter.name] = input.value;
    else query.push(`${encodeURIComponent(parameter.name)}=${encodeURIComponent(input.value)}`);
  }
  if (token) headers.Authorization = `Bearer ${token}`;
  if (body) headers["Content-Type"] = body.type.value;
  return {
    method: operation.method.toUpperCase(),
    url: location.origin + path + (query.length ? `?${query.join("&")}` : ""),
    headers,
    body: body ? body.area.value : null,
    streams: operation.streams,
  };
}

function quoted(text) {
  return `'${text.replaceAll("'", `'\\''`)}'`;
}

// The request as a line for a shell; the token stays out of it, and so out of the shell's history.
export function curl({ method, url, headers, body, streams }) {
  const parts = [streams ? "curl -N" : "curl"];
  if (method !== (body === null ? "GET" : "POST")) parts.push(`-X ${method}`);
  for (const [name, value] of Object.entries(headers)) {
    parts.push(name === "Authorization" ? `-H "Authorization: Bearer $PENSTOCK_TOKEN"` : `-H ${quoted(`${name}: ${value}`)}`);
  }
  if (body !== null) parts.push(`--data-raw ${quoted(compact(headers["Content-Type"], body))}`);
  return [...parts, quoted(url)].join(parts.length > 2 ? " \\\n  " : " ");
}

function compact(type, body) {
  try {
    return type === JSON_TYPE && !/\d{16}/.test(body) ? JSON.stringify(JSON.parse(body)) : body;
  } catch {
    return body;
  }
}

async function perform({ method, url, headers, body }, reply, send) {
  stop();
  const controller = new AbortController();
  running = controller;
  send.disabled = true;
  const started = performance.now();
  reply.replaceChildren(h("p", { class: "muted" }, "Waiting for the server …"), stopButton(controller));
  try {
    const response = await fetch(url, { method, headers: { ...headers, ...FROM_HERE }, body, signal: controller.signal, cache: "no-store" });
    const took = performance.now() - started;
    const type = response.headers.get("content-type") ?? "";
    if (type.startsWith(STREAM_TYPE)) await showStream(response, reply, took, controller);
    else await showReply(response, reply, took, type);
  } catch (error) {
    const text = controller.signal.aborted ? "Stopped." : `The server could not be reached: ${error.message}`;
    reply.replaceChildren(h("p", { class: controller.signal.aborted ? "muted" : "problem" }, text));
  } finally {
    send.disabled = false;
    if (running === controller) running = null;
  }
}

function stopButton(controller) {
  return h("button", { type: "button", class: "small", onclick: () => controller.abort() }, icon("pause"), "Stop");
}

function head(response, took, note) {
  const kind = response.status < 300 ? "good" : response.status < 400 ? "" : "bad";
  return h("div", { class: "reply-head" }, h("span", { class: `badge ${kind}` }, `${response.status} ${response.statusText}`), h("span", { class: "muted num" }, `${took < 10 ? took.toFixed(1) : Math.round(took)} ms`), note);
}

function headerList(response) {
  const rows = [...response.headers].map(([name, value]) => h("tr", {}, h("td", { class: "mono" }, name), h("td", { class: "mono wrap" }, value)));
  return h("details", { class: "reply-headers" }, h("summary", {}, `${rows.length} headers`), h("table", {}, h("tbody", {}, rows)));
}

async function showReply(response, reply, took, type) {
  const bytes = new Uint8Array(await response.arrayBuffer());
  const text = new TextDecoder().decode(bytes.subarray(0, SHOWN_CHARACTERS));
  const cut = bytes.length > SHOWN_CHARACTERS;
  const size = h("span", { class: "muted num" }, `${bytes.length.toLocaleString("en")} bytes`);
  let shown = h("p", { class: "muted" }, "There is no body.");
  if (text) {
    const isJson = type.startsWith(JSON_TYPE) && !cut;
    shown = code(isJson ? indented(text) : text, isJson);
  }
  const note = cut ? h("p", { class: "muted" }, `Only the first ${SHOWN_CHARACTERS.toLocaleString("en")} bytes are shown.`) : null;
  reply.replaceChildren(head(response, took, [size, text ? copyButton(() => text, "Copy the body") : null]), headerList(response), shown, note ?? "");
}

// Numbers that JavaScript cannot hold would come out changed: then as the server wrote it.
function indented(text) {
  try {
    return /\d{16}/.test(text) ? text : pretty(JSON.parse(text));
  } catch {
    return text;
  }
}

async function showStream(response, reply, took, controller) {
  const output = h("pre", { class: "value", tabindex: "0" });
  const count = h("span", { class: "muted num" }, "0 events");
  const stopping = stopButton(controller);
  const timer = setTimeout(() => controller.abort(), STREAM_MS);
  const decoder = new TextDecoder();
  let rest = "";
  let events = 0;
  reply.replaceChildren(head(response, took, [count, h("span", { class: "grow" }), stopping]), headerList(response), output);
  try {
    for (const reader = response.body.getReader(); ; ) {
      const { done, value } = await reader.read();
      if (done) break;
      const blocks = (rest + decoder.decode(value, { stream: true })).split("\n\n");
      rest = blocks.pop();
      for (const block of blocks) {
        if (!block.startsWith(":")) events += 1;
        output.append(h("div", { class: "event" }, json(block)));
        if (output.children.length > 200) output.firstChild.remove();
      }
      count.textContent = `${events} event${events === 1 ? "" : "s"}`;
      output.scrollTop = output.scrollHeight;
    }
  } catch (error) {
    if (!controller.signal.aborted) throw error;
  } finally {
    clearTimeout(timer);
    stopping.replaceWith(h("span", { class: "muted" }, "ended"));
  }
}
