// How pipelines went: the server keeps the last five minutes, and is asked only for what is new.
import { get } from "../api.js";

const KEPT_S = 300;
const histories = new Map();
let newest = null;

// The pipelines, with those points of their history that were not seen before.
export function getRecent(path, signal) {
  const times = [...histories.values()].map((points) => points.at(-1)?.time ?? 0);
  return get(`${path}?history_since=${Math.max(0, ...times)}`, signal);
}

// Points { time, rate, lag } by pipeline, each but the time by query; an answer that was seen before adds none.
export function recent(pipelines) {
  if (pipelines === newest) return histories;
  newest = pipelines;
  const names = new Set(pipelines.map((one) => one.name));
  for (const name of [...histories.keys()]) if (!names.has(name)) histories.delete(name);
  for (const { name, history } of pipelines) {
    const before = histories.get(name) ?? [];
    const whole = [...before, ...history.filter((point) => point.time > (before.at(-1)?.time ?? 0))];
    const since = (whole.at(-1)?.time ?? 0) - KEPT_S;
    histories.set(name, whole.filter((point) => point.time >= since));
  }
  return histories;
}
