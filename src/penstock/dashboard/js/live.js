// The figures of every second: one stream for the whole page, closed while nobody looks.
import { away, session, store } from "./store.js";

const KEPT = 900;
const AGAIN_MS = 2000;

export const live = store({ points: [], connected: false });
let source = null;
let timer = 0;

function open() {
  clearTimeout(timer);
  if (source || document.hidden || !session.get()) return;
  source = new EventSource("/v1/live");
  source.addEventListener("history", (event) => {
    away.set(false);
    live.set({ points: JSON.parse(event.data).points.slice(-KEPT), connected: true });
  });
  source.addEventListener("point", (event) => {
    live.set({ points: [...live.get().points.slice(1 - KEPT), JSON.parse(event.data)], connected: true });
  });
  source.onerror = () => {
    close();
    timer = setTimeout(open, AGAIN_MS);
  };
}

function close() {
  clearTimeout(timer);
  source?.close();
  source = null;
  if (live.get().connected) live.set({ ...live.get(), connected: false });
}

export function startLive() {
  document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
  window.addEventListener("pagehide", close);
  session.subscribe((who) => (who ? open() : close()));
  open();
}
