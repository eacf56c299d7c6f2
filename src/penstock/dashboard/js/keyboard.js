// Keys that work everywhere but in fields.
import { useEffect } from "./html.js";
import { go } from "./router.js";

const PLACES = { o: [], t: ["topics"], g: ["groups"], m: ["messages"], d: ["delayed"], s: ["schedules"], l: ["dead-letters"], i: ["pipelines"], r: ["processes"], p: ["publish"] };
const PATIENCE_MS = 1200;

export const KEYS = [
  ["/", "search"],
  ["j", "the next row"],
  ["k", "the row before"],
  ["n", "the next page of a list"],
  ["b", "the page before"],
  ["g o", "overview"],
  ["g t", "topics"],
  ["g g", "groups"],
  ["g m", "messages"],
  ["g d", "delayed"],
  ["g s", "schedules"],
  ["g l", "dead letters"],
  ["g i", "pipelines"],
  ["g r", "processes"],
  ["g p", "publish"],
  ["?", "these keys"],
  ["Esc", "close a dialogue, leave a field"],
];

function isField(element) {
  return element.isContentEditable || ["INPUT", "TEXTAREA", "SELECT"].includes(element.tagName);
}

// Move the focus to the first link of the next row, or of the one before.
function moveRow(step) {
  const links = [...document.querySelectorAll("main tbody tr")].map((row) => row.querySelector("a")).filter(Boolean);
  if (!links.length) return;
  const row = document.activeElement.closest?.("tbody tr");
  const at = links.findIndex((link) => row?.contains(link));
  const next = at < 0 ? (step > 0 ? 0 : links.length - 1) : Math.min(Math.max(at + step, 0), links.length - 1);
  links[next].focus();
}

export function useKeyboard(help) {
  useEffect(() => {
    let going = 0;
    function pressed(event) {
      if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
      if (isField(event.target)) {
        if (event.key === "Escape") event.target.blur();
        return;
      }
      if (Date.now() - going < PATIENCE_MS && event.key in PLACES) {
        going = 0;
        go(PLACES[event.key]);
      } else if (event.key === "g") {
        going = Date.now();
        return;
      } else if (event.key === "/") {
        document.querySelector("[data-search]")?.focus();
      } else if (event.key === "?") {
        help();
      } else if (event.key === "j" || event.key === "k") {
        moveRow(event.key === "j" ? 1 : -1);
      } else if (event.key === "n" || event.key === "b") {
        document.querySelector(`[data-page=${event.key === "n" ? "next" : "back"}]`)?.click();
      } else {
        return;
      }
      event.preventDefault();
    }
    addEventListener("keydown", pressed);
    return () => removeEventListener("keydown", pressed);
  }, []);
}
