// Elements without a library. Text is always set as text, never as markup.

const ICONS = {
  search: "M7 12A5 5 0 1 0 7 2a5 5 0 0 0 0 10ZM10.600 10.600 14 14",
  copy: "M5.500 5.500h8v8h-8zM10.500 5.500v-3h-8v8h3",
  check: "M3 8.500 6.500 12 13 4.500",
  menu: "M2 4h12M2 8h12M2 12h12",
  overview: "M2 13V9M6 13V4M10 13V7M14 13V2",
  theme: "M13.500 9.500A5.800 5.800 0 0 1 6.500 2.500a5.800 5.800 0 1 0 7 7Z",
  sun: "M8 11a3 3 0 1 0 0-6 3 3 0 0 0 0 6ZM8 1v1.500M8 13.500V15M1 8h1.500M13.500 8H15M3 3l1.100 1.100M11.900 11.900 13 13M13 3l-1.100 1.100M4.100 11.900 3 13",
  system: "M2 3h12v8H2zM6 14h4M8 11v3",
  publish: "M14 2 7 9M14 2l-4.500 12L7 9 2 6.500z",
  pause: "M4 4h8v8H4z",
};
const SVG = "http://www.w3.org/2000/svg";

// An element: h("a", { href, onclick }, "text", [more, children]); null and false are left out.
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(9).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

export function icon(name) {
  const svg = document.createElementNS(SVG, "svg");
  const path = document.createElementNS(SVG, "path");
  svg.setAttribute("class", "icon");
  svg.setAttribute("viewBox", "0 0 16 16");
  svg.setAttribute("aria-hidden", "true");
  path.setAttribute("d", ICONS[name]);
  svg.append(path);
  return svg;
}

// Text with `code` in it.
export function inline(text) {
  return String(text ?? "").split(/(`[^`]+`)/).map((part) => (part.length > 2 && part.startsWith("`") && part.endsWith("`") ? h("code", {}, part.slice(1, -1)) : part));
}

export function paragraphs(text) {
  return String(text ?? "").split(/\n\s*\n/).filter((part) => part.trim()).map((part) => h("p", {}, inline(part.trim().replace(/\s*\n\s*/g, " "))));
}

const TOKENS = /("(?:\\.|[^"\\])*")(\s*:)?|(-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)|(true|false|null)/g;

// JSON in colours; whatever else it is, as it is.
export function json(text) {
  const parts = [];
  let at = 0;
  for (const found of text.matchAll(TOKENS)) {
    const [whole, string, colon, numeral] = found;
    const kind = string ? (colon ? "member" : "string") : numeral ? "numeral" : "word";
    parts.push(text.slice(at, found.index), h("span", { class: `json-${kind}` }, string ?? whole), colon ?? "");
    at = found.index + whole.length;
  }
  parts.push(text.slice(at));
  return parts;
}

export function pretty(value) {
  return JSON.stringify(value, null, 2);
}

export function code(text, isJson = true) {
  return h("pre", { class: "value", tabindex: "0" }, isJson ? json(text) : text);
}

// A button that copies what `text()` says at that moment.
export function copyButton(text, label) {
  const button = h("button", { type: "button", class: "quiet icon-only small", title: label, "aria-label": label }, icon("copy"));
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(text());
    } catch {
      copyTheOldWay(text()); // the clipboard is there on https and on localhost only
    }
    button.replaceChildren(icon("check"));
    say(`Copied.`);
    setTimeout(() => button.replaceChildren(icon("copy")), 1500);
  });
  return button;
}

function copyTheOldWay(text) {
  const area = h("textarea", { class: "hidden" });
  area.value = text;
  document.body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
}

const voice = h("div", { class: "hidden", role: "status" });
document.body.append(voice);

// Tell those who cannot see it.
export function say(text) {
  voice.textContent = text;
}

export function card(title, ...children) {
  return h("section", { class: "card" }, h("header", {}, h("h2", {}, title)), ...children);
}
