// Asking again and again, but only for what is on the screen, and only while somebody can see it.
import { get } from "./api.js";
import { useEffect, useRef, useState } from "./html.js";
import { away, toast } from "./store.js";

const turns = new Set();
let changes = 0; // under way: what is about to be deleted is not asked for

// Ask for everything on the screen: something was changed, or the server is back. Pages that are left go first.
export function refresh() {
  setTimeout(() => {
    for (const turn of [...turns]) turn();
  }, 0);
}

away.subscribe((isAway) => {
  if (!isAway) refresh();
});

// What a path answers. While another path is asked for, the old answer stays (`stale`): nothing flickers.
export function usePoll(path, everyMs = 3000, ask = get) {
  const [state, set] = useState({ path: null, data: null, error: null });
  useEffect(() => {
    if (path === null) return undefined;
    let timer = 0;
    let running = null;
    async function turn() {
      clearTimeout(timer);
      if (changes) {
        timer = setTimeout(turn, everyMs);
        return;
      }
      running?.abort();
      const mine = (running = new AbortController());
      try {
        const data = await ask(path, mine.signal);
        if (!mine.signal.aborted) set({ path, data, error: null });
      } catch (error) {
        if (mine.signal.aborted || error.name === "AbortError") return;
        set((old) => ({ path, data: old.data, error }));
      }
      if (running === mine && !document.hidden) timer = setTimeout(turn, everyMs);
    }
    function seen() {
      clearTimeout(timer);
      if (!document.hidden) turn();
    }
    turn();
    turns.add(turn);
    document.addEventListener("visibilitychange", seen);
    return () => {
      clearTimeout(timer);
      running?.abort();
      turns.delete(turn);
      document.removeEventListener("visibilitychange", seen);
    };
  }, [path, everyMs]);
  return { ...state, stale: state.path !== path };
}

// Something that is done once, with what went wrong; true when it was done. Nothing is asked for meanwhile, unless it is watched.
export function useAction(watched = false) {
  const [state, set] = useState({ busy: false, error: null });
  const alive = useRef(true);
  useEffect(() => {
    alive.current = true;
    return () => {
      alive.current = false;
    };
  }, []);
  async function run(work, done = null) {
    set({ busy: true, error: null });
    if (!watched) changes += 1;
    try {
      const answer = await work();
      if (alive.current) set({ busy: false, error: null });
      const text = typeof done === "function" ? done(answer) : done;
      if (text) toast(text);
      return true;
    } catch (error) {
      if (alive.current) set({ busy: false, error });
      else toast(error.message, "bad");
      return false;
    } finally {
      if (!watched) setTimeout(() => (changes -= 1), 0); // when a page that was left is gone
      refresh();
    }
  }
  return { ...state, run };
}

// A button of a row: what goes wrong is said in a corner.
export async function act(work, done) {
  try {
    const answer = await work();
    toast(typeof done === "function" ? done(answer) : done);
  } catch (error) {
    toast(error.message, "bad");
  }
  refresh();
}
