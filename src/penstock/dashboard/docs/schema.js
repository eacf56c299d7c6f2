// Schemas as people read them.
import { h, inline } from "./dom.js";

const OPEN_DEPTH = 2;
const HUGE = 1e9; // bounds beyond say nothing to a reader

export class Schemas {
  constructor(document) {
    this.document = document;
  }

  resolve(schema) {
    for (let steps = 0; schema?.$ref && steps < 20; steps++) {
      const path = schema.$ref.replace(/^#\//, "").split("/").map((part) => part.replace(/~1/g, "/").replace(/~0/g, "~"));
      const { $ref, ...own } = schema;
      schema = { ...path.reduce((found, part) => found?.[part], this.document), ...own };
    }
    return schema ?? {};
  }

  // What it may be, apart from null, and whether it may be null.
  choices(schema) {
    schema = this.resolve(schema);
    const nested = [...(schema.anyOf ?? []), ...(schema.oneOf ?? [])].map((choice) => this.choices(choice));
    if (nested.length) return { list: nested.flatMap((choice) => choice.list), nullable: nested.some((choice) => choice.nullable) };
    const types = [schema.type ?? []].flat();
    const nullable = types.includes("null") || schema.nullable === true;
    const rest = types.filter((type) => type !== "null");
    if (types.length && !rest.length) return { list: [], nullable: true };
    if (rest.length > 1) return { list: rest.map((type) => ({ ...schema, type })), nullable };
    const values = schema.enum?.filter((value) => value !== null);
    return { list: [{ ...schema, type: rest[0], ...(values ? { enum: values } : {}) }], nullable };
  }

  type(schema, withNull = true) {
    const { list, nullable } = this.choices(schema);
    const names = [...new Set(list.map((choice) => this.#name(choice))), ...(nullable && withNull ? ["null"] : [])];
    return names.join(" | ") || "anything";
  }

  #name(schema) {
    if (schema.const !== undefined) return JSON.stringify(schema.const);
    if (schema.enum) return schema.enum.map((value) => JSON.stringify(value)).join(" | ");
    if (schema.type === "array") {
      const inside = this.type(schema.items);
      return inside.includes(" | ") ? `(${inside})[]` : `${inside}[]`;
    }
    if (schema.properties) return schema.title ?? "object";
    if (schema.additionalProperties?.constructor === Object) return `{text: ${this.type(schema.additionalProperties)}}`;
    const format = { "date-time": "time", binary: "bytes", uuid: "UUID" }[schema.format];
    return format ?? schema.type ?? (schema.title || "anything");
  }

  // What else is asked for: bounds, lengths, patterns.
  limits(schema) {
    const found = [];
    const { list } = this.choices(schema);
    for (const choice of list) {
      if (choice.examples) {
        found.push(`such as ${choice.examples.map((value) => JSON.stringify(value)).join(", ")}`);
        continue;
      }
      found.push(range(choice.minimum ?? choice.exclusiveMinimum, choice.maximum ?? (Number.isInteger(choice.exclusiveMaximum) ? choice.exclusiveMaximum - 1 : choice.exclusiveMaximum), ""));
      found.push(range(choice.minLength, choice.maxLength, " characters"));
      found.push(range(choice.minItems, choice.maxItems, " items"));
      if (choice.pattern) found.push(choice.pattern);
    }
    return [...new Set(found.filter(Boolean))].join("; ");
  }

  default(schema) {
    const value = this.resolve(schema).default;
    return value === undefined || value === null ? "" : JSON.stringify(value);
  }

  description(schema) {
    return this.resolve(schema).description ?? "";
  }

  // The parts of a schema that have parts themselves, without those that are shown already further up.
  #inside(schema) {
    return this.choices(schema).list.flatMap((choice) => {
      if (choice.type === "array") return this.#inside(choice.items);
      if (choice.properties) return [choice];
      return choice.additionalProperties?.constructor === Object ? this.#inside(choice.additionalProperties) : [];
    });
  }

  // The fields of a body; in a request, what must be there is marked.
  tree(schema, isRequest) {
    const parts = this.#inside(schema);
    if (!parts.length) return h("p", { class: "tree-type" }, h("span", { class: "type" }, this.type(schema)), " ", h("small", {}, this.limits(schema)));
    const top = this.type(schema);
    return h("div", { class: "tree" }, top.endsWith("[]") ? h("p", { class: "type" }, top) : null, this.#fields(parts, isRequest, [], 0));
  }

  #fields(parts, isRequest, above, depth) {
    return parts.map((part) => [
      parts.length > 1 ? h("p", { class: "type" }, part.title ?? "or") : null,
      h("ul", {}, Object.entries(part.properties).map(([name, field]) => this.#field(name, field, isRequest ? (part.required ?? []).includes(name) : null, [...above, part.title], depth))),
    ]);
  }

  #field(name, schema, required, above, depth) {
    const inside = this.#inside(schema).filter((part) => !part.title || !above.includes(part.title));
    const value = this.default(schema);
    const row = [
      h("span", { class: "field-name" }, name),
      required ? h("abbr", { class: "required", title: "must be there" }, "*") : null,
      h("span", { class: "type" }, this.type(schema)),
      h("small", {}, [this.limits(schema), value ? `${value} if it is left out` : ""].filter(Boolean).join("; ")),
    ];
    const text = this.description(schema);
    const about = text && !this.#isOfType(text, schema) ? h("div", { class: "field-text" }, inline(text)) : null;
    if (!inside.length) return h("li", {}, row, about);
    return h("li", {}, h("details", { open: depth + 1 < OPEN_DEPTH }, h("summary", {}, row), about, this.#fields(inside, required !== null, above, depth + 1)));
  }

  // Whether a description is that of the type, not of the field.
  #isOfType(text, schema) {
    return schema.$ref !== undefined && schema.description === undefined && text === this.resolve(schema).description;
  }
}

function range(least, most, unit) {
  const [from, to] = [least, most].map((bound) => (bound === undefined || bound >= HUGE ? "" : bound.toLocaleString("en")));
  if (from && to) return `${from} to ${to}${unit}`;
  return from ? `at least ${from}${unit}` : to ? `at most ${to}${unit}` : "";
}
