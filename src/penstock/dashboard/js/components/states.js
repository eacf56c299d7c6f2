// What stands where there is nothing to show: not yet, nothing there, or something went wrong.
import { html, useEffect, useState } from "../html.js";
import { href } from "../router.js";
import { Copy } from "./figures.js";
import { Icon } from "./icons.js";

// Only after a while: most answers come before anybody would notice.
export function Loading() {
  const [shown, show] = useState(false);
  useEffect(() => {
    const timer = setTimeout(() => show(true), 250);
    return () => clearTimeout(timer);
  }, []);
  return html`<div class="loading ${shown ? "shown" : ""}" role="status"><span class="spinner"></span>Loading…</div>`;
}

export function Empty({ icon = "drop", title, children }) {
  return html`<div class="empty">
    <div class="empty-icon"><${Icon} name=${icon} /></div>
    <h3>${title}</h3>
    <div class="empty-text">${children}</div>
  </div>`;
}

const TITLES = { 0: "The server does not answer", 403: "Your token does not allow this", 404: "There is no such thing" };

export function Failed({ error }) {
  return html`<div class="empty bad" role="alert">
    <div class="empty-icon"><${Icon} name="warn" /></div>
    <h3>${TITLES[error.status] ?? "That did not work"}</h3>
    <div class="empty-text">
      <p>${error.message}</p>
      ${error.hint ? html`<p class="muted">${error.hint}</p>` : null}
      ${error.status === 404 ? html`<p><a href=${href([])}>Back to the overview</a></p>` : null}
    </div>
  </div>`;
}

// The content of an answer as soon as there is one; until then, or instead, what is the matter.
export function Answered({ poll, children }) {
  const gone = poll.error && (poll.data === null || [403, 404].includes(poll.error.status));
  if (gone) return html`<${Failed} error=${poll.error} />`;
  if (poll.data === null) return html`<${Loading} />`;
  return children(poll.data);
}

export function Problem({ error }) {
  if (!error) return null;
  return html`<p class="problem" role="alert"><${Icon} name="warn" /><span>${error.message}${error.hint ? html` <span class="muted">${error.hint}</span>` : null}</span></p>`;
}

// A command to try, with a button that copies it.
export function Command({ text }) {
  return html`<div class="command"><code>${text}</code><${Copy} text=${text} /></div>`;
}

// How to publish the first message of a topic.
export function HowToPublish({ topic = "orders" }) {
  const path = `${location.origin}/v1/topics/${encodeURIComponent(topic)}/publish`;
  return html`<${Command} text=${`penstock publish ${topic} 'two coffees' --key alex`} />
    <${Command} text=${`curl -X POST ${path} -H 'Content-Type: application/json' -d '{"value": "two coffees", "key": "alex"}'`} />
    <p>or <a href=${href(["publish"], { topic })}>fill in the form</a>.</p>`;
}
