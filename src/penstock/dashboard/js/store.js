// Values that several parts of the page look at.
import { useEffect, useState } from "./html.js";

export function store(initial) {
  const listeners = new Set();
  let value = initial;
  return {
    get: () => value,
    set(next) {
      if (Object.is(next, value)) return;
      value = next;
      for (const listener of [...listeners]) listener(value);
    },
    subscribe(listener) {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
  };
}

export function useStore(source) {
  const [value, set] = useState(source.get());
  useEffect(() => {
    set(source.get());
    return source.subscribe((next) => set(next));
  }, [source]);
  return value;
}

// Whether the server answers.
export const away = store(false);

// Who is logged in: undefined until it is known, null when a token is needed.
export const session = store(undefined);

// What a token without the scope cannot do is not offered.
export function may(scope) {
  const scopes = session.get()?.scopes ?? [];
  return scopes.includes(scope) || scopes.includes("admin");
}

export const theme = store(localStorage.getItem("penstock-theme") ?? "system");

theme.subscribe((chosen) => {
  if (chosen === "system") {
    localStorage.removeItem("penstock-theme");
    delete document.documentElement.dataset.theme;
  } else {
    localStorage.setItem("penstock-theme", chosen);
    document.documentElement.dataset.theme = chosen;
  }
});

// Messages that go away by themselves.
export const toasts = store([]);
let toastNumber = 0;

export function toast(text, kind = "good", link = null) {
  const item = { number: ++toastNumber, text, kind, link };
  toasts.set([...toasts.get().slice(-3), item]);
  setTimeout(() => dismiss(item.number), kind === "bad" ? 9000 : 5000);
}

export function dismiss(number) {
  toasts.set(toasts.get().filter((item) => item.number !== number));
}
