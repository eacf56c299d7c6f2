// The page around the pages: navigation, who is logged in, and whether the server is there.
import { findSession, post } from "./api.js";
import { Dialog } from "./components/dialog.js";
import { Icon } from "./components/icons.js";
import { Empty, Loading } from "./components/states.js";
import { rate } from "./format.js";
import { html, render, useEffect, useState } from "./html.js";
import { KEYS, useKeyboard } from "./keyboard.js";
import { live, startLive } from "./live.js";
import { NAVIGATION, pageOf } from "./pages.js";
import { Login } from "./pages/login.js";
import { href, route } from "./router.js";
import { away, dismiss, session, theme, toast, toasts, useStore } from "./store.js";

const THEMES = { system: ["light", "system", "as the system"], light: ["dark", "sun", "light"], dark: ["system", "theme", "dark"] };

function App() {
  const who = useStore(session);
  const isAway = useStore(away);
  const { parts, query } = useStore(route);
  const [helping, help] = useState(false);
  const [menu, setMenu] = useState(false);
  useKeyboard(() => help(true));
  useEffect(() => setMenu(false), [parts.join("/")]);
  if (who === undefined) return isAway ? html`<${Away} />` : html`<div class="alone"><${Loading} /></div>`;
  if (who === null) return html`<${Login} /><${Toasts} />`;
  const { page, section, title, key } = pageOf(parts, query);
  return html`<a class="skip" href="#main" onClick=${toMain}>To the content</a>
    <div class="shell">
      <${Side} section=${section} who=${who} help=${() => help(true)} menu=${menu} setMenu=${setMenu} />
      <main id="main" tabindex="-1">
        ${isAway ? html`<${Away} />` : null}
        <${Title} text=${title} />
        <div key=${key} class="page">${page ?? html`<${Empty} icon="warn" title="There is no such page"><a href=${href([])}>To the overview</a><//>`}</div>
      </main>
    </div>
    ${helping ? html`<${Help} close=${() => help(false)} />` : null}
    <${Toasts} />`;
}

function toMain(event) {
  event.preventDefault();
  document.getElementById("main").focus();
}

function Title({ text }) {
  useEffect(() => {
    document.title = text ? `${text} · Penstock` : "Penstock";
  }, [text]);
  return null;
}

function Side({ section, who, help, menu, setMenu }) {
  const chosen = useStore(theme);
  const [next, icon, name] = THEMES[chosen] ?? THEMES.system;
  return html`<aside class="side ${menu ? "open" : ""}">
    <div class="brand">
      <a href=${href([])} aria-label="Penstock, overview"><img src="/ui/icon.svg" alt="" width="26" height="26" /><span>Penstock</span></a>
      <button type="button" class="quiet icon-only menu" aria-label="Menu" aria-expanded=${menu} onClick=${() => setMenu(!menu)}><${Icon} name="menu" /></button>
    </div>
    <nav aria-label="Pages">
      ${NAVIGATION.map(([id, text]) => html`<a key=${id} href=${href(id ? [id] : [])} aria-current=${section === id ? "page" : null}>
        <${Icon} name=${id || "overview"} />${text}
      </a>`)}
    </nav>
    <div class="side-foot">
      <${Pulse} />
      <div class="side-buttons">
        <button type="button" class="quiet icon-only" title=${`Colours: ${name}`} aria-label=${`Colours: ${name}`} data-theme-switch onClick=${() => theme.set(next)}><${Icon} name=${icon} /></button>
        <button type="button" class="quiet icon-only" title="Keys (?)" aria-label="Keys" onClick=${help}><${Icon} name="help" /></button>
        <a class="button quiet small" href="/docs" title="The HTTP API">API</a>
        ${who.auth === "off" ? null : html`<button type="button" class="quiet icon-only" title=${`Log out ${who.name}`} aria-label="Log out" onClick=${logOut}><${Icon} name="logout" /></button>`}
      </div>
    </div>
  </aside>`;
}

async function logOut() {
  try {
    await post("/v1/logout");
    session.set(null);
  } catch (error) {
    toast(error.message, "bad");
  }
}

function Pulse() {
  const { points, connected } = useStore(live);
  const latest = points.at(-1);
  const text = connected ? (latest ? `${rate(latest.published)} in/s · ${rate(latest.delivered)} out/s` : "live") : "not live";
  return html`<div class="pulse ${connected ? "on" : ""}" title=${connected ? "Figures come in every second" : "Waiting for the server"}><i></i>${text}</div>`;
}

function Away() {
  return html`<div class="banner bad" role="alert"><${Icon} name="warn" /><b>The server does not answer.</b> What you see is what it said last; this page connects again by itself.</div>`;
}

function Toasts() {
  const list = useStore(toasts);
  return html`<div class="toasts" role="status" aria-live="polite">
    ${list.map((item) => html`<div key=${item.number} class="toast ${item.kind}">
      <${Icon} name=${item.kind === "bad" ? "warn" : "check"} />
      <span>${item.text} ${item.link ? html`<a href=${item.link.href}>${item.link.text}</a>` : null}</span>
      <button type="button" class="quiet icon-only" aria-label="Dismiss" onClick=${() => dismiss(item.number)}><${Icon} name="close" /></button>
    </div>`)}
  </div>`;
}

function Help({ close }) {
  useEffect(() => {
    addEventListener("hashchange", close);
    return () => removeEventListener("hashchange", close);
  }, []);
  return html`<${Dialog} title="Keys" close=${close}>
    <dl class="keys">
      ${KEYS.map(([keys, text]) => html`<div key=${text}><dt>${keys.split(" ").map((key) => html`<kbd>${key}</kbd>`)}</dt><dd>${text}</dd></div>`)}
    </dl>
  <//>`;
}

render(html`<${App} />`, document.getElementById("app"));
startLive();
findSession();
