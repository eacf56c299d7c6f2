// One operation: what it is for, what it takes, what it answers.
import { card, code, copyButton, h, inline, paragraphs, pretty } from "./dom.js";
import { tryIt } from "./request.js";

const METHODS = ["get", "post", "put", "patch", "delete"];

// All operations of a document, in the order of its tags.
export function operationsOf(document, schemas) {
  const found = [];
  for (const [path, item] of Object.entries(document.paths)) {
    for (const method of METHODS) {
      if (item[method]) found.push(operationOf(path, method, item, schemas));
    }
  }
  const order = (document.tags ?? []).map((tag) => tag.name);
  const place = (operation) => (order.includes(operation.tag) ? order.indexOf(operation.tag) : order.length);
  return found.map((operation, index) => [operation, index]).sort(([a, i], [b, j]) => place(a) - place(b) || i - j).map(([operation]) => operation);
}

function operationOf(path, method, item, schemas) {
  const raw = item[method];
  const identity = raw.operationId ?? `${method} ${path}`;
  const words = identity.replace(/[^A-Za-z0-9]+/g, " ").trim();
  const responses = Object.entries(raw.responses ?? {}).map(([status, response]) => [status, schemas.resolve(response)]);
  return {
    path,
    method,
    slug: words.toLowerCase().replaceAll(" ", "-"),
    name: capital(words),
    tag: raw.tags?.[0] ?? "other",
    summary: raw.summary ?? "",
    description: raw.description ?? "",
    parameters: [...(item.parameters ?? []), ...(raw.parameters ?? [])].map((parameter) => schemas.resolve(parameter)),
    body: raw.requestBody ? schemas.resolve(raw.requestBody) : null,
    responses: responses.sort(([a], [b]) => a.localeCompare(b)),
    needsToken: (raw.security ?? []).length > 0,
    streams: responses.some(([, response]) => "text/event-stream" in (response.content ?? {})),
  };
}

export function capital(text) {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

export function badge(method) {
  return h("span", { class: `method ${method}` }, method === "delete" ? "DEL" : method.toUpperCase());
}

export function operationPage(operation, schemas) {
  return [
    h("div", { class: "page-head" }, h("h1", {}, h("a", { class: "crumb", href: "#" }, operation.tag), h("span", { class: "slash" }, "/"), operation.name)),
    h("div", { class: "path-bar" }, badge(operation.method), h("span", { class: "mono wrap" }, pathParts(operation.path)), copyButton(() => operation.path, "Copy the path")),
    h(
      "div",
      { class: "columns" },
      h(
        "div",
        {},
        h("div", { class: "lead" }, h("p", {}, inline(/[.?!]$/.test(operation.summary) ? operation.summary : `${operation.summary}.`)), paragraphs(operation.description), operation.needsToken ? null : h("p", { class: "muted" }, "Needs no token.")),
        operation.parameters.length ? parametersCard(operation.parameters, schemas) : null,
        operation.body ? bodyCard(operation.body, schemas) : null,
        responsesCard(operation.responses, schemas),
      ),
      h("div", { class: "trying" }, tryIt(operation, schemas)),
    ),
  ];
}

function pathParts(path) {
  return path.split(/(\{[^}]+\})/).map((part) => (part.startsWith("{") ? h("b", {}, part) : part));
}

function parametersCard(parameters, schemas) {
  const rows = parameters.map((parameter) => {
    const limits = schemas.limits(parameter.schema);
    return h(
      "tr",
      {},
      h("td", { class: "mono" }, parameter.name, parameter.required ? h("abbr", { class: "required", title: "must be there" }, "*") : null),
      h("td", { class: "muted" }, parameter.in),
      h("td", {}, h("span", { class: "type" }, schemas.type(parameter.schema, false)), limits ? h("small", { class: "limits" }, limits) : null),
      h("td", { class: "mono" }, schemas.default(parameter.schema)),
      h("td", { class: "text" }, inline(parameter.description ?? schemas.description(parameter.schema))),
    );
  });
  const head = ["Name", "In", "Type", "Default", "What it is"].map((text) => h("th", { scope: "col" }, text));
  return card("Parameters", h("div", { class: "table-box" }, h("table", { class: "parameters" }, h("thead", {}, h("tr", {}, head)), h("tbody", {}, rows))));
}

function media(content, schemas, isRequest) {
  return Object.entries(content ?? {}).map(([type, { schema, examples, example }]) => {
    const shown = Object.entries(examples ?? (example === undefined ? {} : { example: { value: example } }));
    return h(
      "div",
      { class: "media" },
      h("p", { class: "muted media-type" }, type),
      schema ? schemas.tree(schema, isRequest) : null,
      shown.map(([name, { value, summary }]) => h("details", { class: "example" }, h("summary", {}, shown.length > 1 ? (summary ?? name) : "example"), code(typeof value === "string" ? value : pretty(value)))),
    );
  });
}

function bodyCard(body, schemas) {
  const text = body.description ?? schemas.description(Object.values(body.content)[0]?.schema ?? {});
  return card("Body", text ? h("p", { class: "about" }, inline(text)) : null, media(body.content, schemas, true));
}

function responsesCard(responses, schemas) {
  return card(
    "Responses",
    responses.map(([status, response]) => {
      const isGood = status.startsWith("2");
      const inside = media(response.content, schemas, false);
      const title = [h("span", { class: `badge ${isGood ? "good" : "bad"}` }, status), h("span", {}, inline(capital(response.description ?? "")))];
      return inside.length ? h("details", { class: "response", open: isGood }, h("summary", {}, title), inside) : h("div", { class: "response" }, h("div", { class: "response-only" }, title));
    }),
  );
}
