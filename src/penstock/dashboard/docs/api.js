// The reference of the HTTP API: reads openapi.json, and shows one operation at a time.
import { card, h, icon, inline, paragraphs } from "./dom.js";
import { badge, capital, operationPage, operationsOf } from "./operation.js";
import { stop } from "./request.js";
import { Schemas } from "./schema.js";

const THEMES = { system: ["light", "system", "as the system"], light: ["dark", "sun", "light"], dark: ["system", "theme", "dark"] };
const side = document.querySelector(".side");
const main = document.getElementById("main");
let operations = [];
let links = [];

async function start() {
  buildSide();
  main.append(h("div", { class: "loading shown" }, h("span", { class: "spinner" }), "Loading"));
  let description;
  try {
    const response = await fetch("/docs/openapi.json");
    if (!response.ok) throw new Error(`it answers ${response.status}`);
    description = await response.json();
  } catch (error) {
    main.replaceChildren(h("p", { class: "problem", role: "alert" }, `The server does not tell what it can do: ${error.message}. Load the page again.`));
    return;
  }
  const schemas = new Schemas(description);
  operations = operationsOf(description, schemas);
  buildList(description);
  const show = () => {
    if (location.hash === "#main") return main.focus();
    stop();
    const operation = operations.find((one) => `#${one.slug}` === location.hash);
    mark(operation);
    document.title = `${operation?.name ?? "API"} · Penstock`;
    main.replaceChildren(h("div", { class: "page" }, operation ? operationPage(operation, schemas) : overview(description)));
    scrollTo(0, 0);
  };
  addEventListener("hashchange", show);
  addEventListener("keydown", pressed);
  show();
}

function buildSide() {
  const menu = h("button", { type: "button", class: "quiet icon-only menu", "aria-label": "Menu", "aria-expanded": "false" }, icon("menu"));
  menu.addEventListener("click", () => menu.setAttribute("aria-expanded", String(side.classList.toggle("open"))));
  const search = h("input", { type: "search", placeholder: "Search the API", "aria-label": "Search the API", autocomplete: "off", spellcheck: "false", "data-search": true });
  search.addEventListener("input", () => filter(search.value));
  search.addEventListener("keydown", (event) => {
    if (event.key === "Enter") visible()[0]?.click();
    if (event.key === "ArrowDown") visible()[0]?.focus();
    if (event.key === "Enter" || event.key === "ArrowDown") event.preventDefault();
  });
  side.append(
    h("div", { class: "brand" }, h("a", { href: "#" }, h("img", { src: "/ui/icon.svg", alt: "", width: "26", height: "26" }), h("span", {}, "Penstock ", h("small", {}, "API"))), menu),
    h("div", { class: "search" }, icon("search"), search, h("kbd", {}, "/")),
    h("nav", { "aria-label": "Operations" }),
    h("div", { class: "side-foot" }, h("div", { class: "side-buttons" }, themeButton(), h("a", { class: "button quiet small", href: "/" }, icon("overview"), "Dashboard"), h("a", { class: "button quiet small", href: "/docs/openapi.json" }, "openapi.json"))),
  );
}

function themeButton() {
  const button = h("button", { type: "button", class: "quiet icon-only", "data-theme-switch": true });
  const chosen = () => localStorage.getItem("penstock-theme") ?? "system";
  const show = () => {
    const [, drawing, name] = THEMES[chosen()] ?? THEMES.system;
    button.replaceChildren(icon(drawing));
    button.title = `Colours: ${name}`;
    button.setAttribute("aria-label", button.title);
  };
  button.addEventListener("click", () => {
    const [next] = THEMES[chosen()] ?? THEMES.system;
    if (next === "system") {
      localStorage.removeItem("penstock-theme");
      delete document.documentElement.dataset.theme;
    } else {
      localStorage.setItem("penstock-theme", next);
      document.documentElement.dataset.theme = next;
    }
    show();
  });
  show();
  return button;
}

function byTag(description) {
  const about = new Map((description.tags ?? []).map((tag) => [tag.name, tag.description]));
  const names = [...new Set(operations.map((operation) => operation.tag))];
  return names.map((name) => [name, about.get(name), operations.filter((operation) => operation.tag === name)]);
}

function buildList(description) {
  const nav = side.querySelector("nav");
  for (const [name, , list] of byTag(description)) {
    const group = list.map((operation) => {
      const link = h("a", { href: `#${operation.slug}`, title: `${operation.method.toUpperCase()} ${operation.path}` }, badge(operation.method), h("span", {}, operation.name));
      const words = [operation.name, operation.slug, operation.method, operation.path, operation.summary, name].join(" ").toLowerCase();
      links.push({ link, operation, words });
      return link;
    });
    nav.append(h("section", {}, h("h2", {}, name), group));
  }
  nav.append(h("p", { class: "muted nothing", hidden: true }, "Nothing is called that."));
}

function filter(text) {
  const wanted = text.toLowerCase().split(/\s+/).filter(Boolean);
  for (const { link, words } of links) link.hidden = !wanted.every((word) => words.includes(word));
  for (const section of side.querySelectorAll("nav section")) section.hidden = !section.querySelector("a:not([hidden])");
  side.querySelector(".nothing").hidden = links.some(({ link }) => !link.hidden);
  side.classList.toggle("searching", wanted.length > 0);
}

function visible() {
  return links.filter(({ link }) => !link.hidden).map(({ link }) => link);
}

function mark(operation) {
  for (const entry of links) {
    if (entry.operation === operation) {
      entry.link.setAttribute("aria-current", "page");
      entry.link.scrollIntoView({ block: "nearest" });
    } else entry.link.removeAttribute("aria-current");
  }
  side.classList.remove("open", "searching");
  side.querySelector(".menu").setAttribute("aria-expanded", "false");
}

function overview(description) {
  const groups = byTag(description).map(([name, about, list]) =>
    card(
      capital(name),
      about ? h("p", { class: "about" }, about) : null,
      h("div", { class: "table-box" }, h("table", { class: "overview" }, h("tbody", {}, list.map((operation) => h("tr", {}, h("td", {}, badge(operation.method)), h("td", { class: "mono" }, h("a", { href: `#${operation.slug}` }, operation.path)), h("td", { class: "text" }, inline(operation.summary))))))),
    ),
  );
  return [
    h("div", { class: "page-head" }, h("h1", {}, `${description.info.title} API`), h("span", { class: "badge" }, description.info.version)),
    h("div", { class: "lead" }, paragraphs(description.info.description)),
    groups,
  ];
}

function pressed(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const search = side.querySelector("[data-search]");
  if (event.target.matches("input, select, textarea")) {
    if (event.key !== "Escape") return;
    if (event.target === search) {
      search.value = "";
      filter("");
    }
    event.target.blur();
  } else if (event.key === "/") {
    event.preventDefault();
    search.focus();
    search.select();
  } else if (["j", "k", "ArrowDown", "ArrowUp"].includes(event.key)) {
    step(event, event.key === "j" || event.key === "ArrowDown" ? 1 : -1);
  }
}

// j and k go to the next operation and the one before; arrows move along the list while it has the focus.
function step(event, by) {
  const shown = visible();
  const isArrow = event.key.startsWith("Arrow");
  const at = shown.findIndex((link) => (isArrow ? link === document.activeElement : link.hasAttribute("aria-current")));
  if (isArrow && at < 0) return;
  event.preventDefault();
  const next = shown[Math.min(Math.max(at + by, 0), shown.length - 1)];
  if (isArrow) next?.focus();
  else next?.click();
}

start();
