// Where the page is: #/topics/orders/messages?partition=2
import { store } from "./store.js";

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

export function parse(hash) {
  const [path, query = ""] = hash.replace(/^#\/?/, "").split("?", 2);
  return {
    parts: path.split("/").filter(Boolean).map(decoded),
    query: Object.fromEntries(new URLSearchParams(query)),
  };
}

export const route = store(parse(location.hash));

addEventListener("hashchange", () => route.set(parse(location.hash)));

// The address of a page; parameters without a value are left out.
export function href(parts, query = {}) {
  const given = Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== "");
  const path = parts.map(encodeURIComponent).join("/");
  return `#/${path}${given.length ? `?${new URLSearchParams(given)}` : ""}`;
}

export function go(parts, query) {
  location.hash = href(parts, query);
  route.set(parse(location.hash));
}

// Change parameters of this page without a new entry in the history.
export function setQuery(changes) {
  const { parts, query } = route.get();
  history.replaceState(null, "", href(parts, { ...query, ...changes }));
  route.set(parse(location.hash));
}

export const topicHref = (topic, ...rest) => href(["topics", topic, ...rest]);

// The page of a message, by its id: orders/0/17.
export function messageHref(id) {
  const [topic, partition, offset] = id.split("/");
  return topicHref(topic, "messages", partition, offset);
}
