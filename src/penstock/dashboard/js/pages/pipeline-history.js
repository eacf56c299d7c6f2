// How pipelines went while this window was open: the server keeps only the last report of each.

const KEPT = 300;
const WINDOW_S = 10;
const histories = new Map();
let newest = null;

// Points { time, rows, rate, lag } by pipeline, each but the time by query; an answer that was seen before adds none.
export function recent(pipelines, nowS = Date.now() / 1000) {
  if (pipelines === newest) return histories;
  newest = pipelines;
  const names = new Set(pipelines.map((one) => one.name));
  for (const name of [...histories.keys()]) if (!names.has(name)) histories.delete(name);
  for (const one of pipelines) {
    const before = histories.get(one.name) ?? [];
    histories.set(one.name, [...before.slice(1 - KEPT), pointOf(one, before, nowS)]);
  }
  return histories;
}

function pointOf(one, before, nowS) {
  const rows = Object.fromEntries(one.queries.map((query) => [query.name, query.rows]));
  const since = before.find((point) => nowS - point.time <= WINDOW_S);
  const rates = Object.keys(rows).map((name) => [name, rateSince(since, name, rows[name], nowS)]);
  return { time: nowS, rows, rate: Object.fromEntries(rates), lag: Object.fromEntries(one.queries.map((query) => [query.name, query.lag])) };
}

// Rows a second over the last seconds; unknown where the query is new, or counts from 0 again.
function rateSince(since, name, rows, nowS) {
  const past = since?.rows[name];
  return past === undefined || rows < past ? null : (rows - past) / Math.max(nowS - since.time, 0.001);
}
