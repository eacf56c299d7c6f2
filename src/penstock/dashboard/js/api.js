// Requests to the server, and what became of them.
import { away, session } from "./store.js";

export class ApiError extends Error {
  constructor(status, text, hint) {
    super(text);
    this.status = status;
    this.hint = hint;
  }
}

// A path whose parts may be anything: url`/v1/topics/${name}`.
export function url(texts, ...values) {
  return texts.reduce((path, text, number) => path + encodeURIComponent(values[number - 1]) + text);
}

// A path with parameters; those without a value are left out.
export function withQuery(path, parameters) {
  const given = Object.entries(parameters).filter(([, value]) => value !== undefined && value !== null && value !== "");
  return given.length ? `${path}?${new URLSearchParams(given)}` : path;
}

async function request(method, path, body, signal) {
  let response;
  try {
    response = await fetch(path, {
      method,
      signal,
      credentials: "same-origin",
      headers: body === undefined ? {} : { "Content-Type": "application/json" },
      body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    away.set(true);
    throw new ApiError(0, "The server does not answer.", "It is asked again every few seconds.");
  }
  away.set(false);
  const answer = await read(response);
  if (response.ok) return answer;
  if (response.status === 401 && path !== "/v1/login") session.set(null);
  throw new ApiError(response.status, answer?.error ?? `The server says ${response.status}.`, answer?.hint ?? "");
}

async function read(response) {
  const text = await response.text();
  try {
    return text === "" ? null : JSON.parse(text);
  } catch {
    return { error: text.slice(0, 300) };
  }
}

export const get = (path, signal) => request("GET", path, undefined, signal);
export const post = (path, body = {}) => request("POST", path, body);
export const put = (path, body) => request("PUT", path, body);
export const patch = (path, body) => request("PATCH", path, body);
export const remove = (path) => request("DELETE", path);

export async function findSession() {
  try {
    session.set(await get("/v1/whoami"));
  } catch (error) {
    if (error.status === 0) setTimeout(findSession, 2000);
    else if (error.status !== 401) session.set(null);
  }
}
