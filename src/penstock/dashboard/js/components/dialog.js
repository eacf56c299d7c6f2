// Dialogues: the browser's own, which keep the focus inside and close with Esc.
import { html, useId, useLayoutEffect, useRef, useState } from "../html.js";
import { useAction } from "../poll.js";
import { Icon } from "./icons.js";
import { Problem } from "./states.js";

export function Dialog({ title, close, children, wide = false }) {
  const element = useRef(null);
  const id = useId();
  useLayoutEffect(() => {
    element.current.showModal(); // before the next click: that would go to what is behind it
  }, []);
  return html`<dialog
    ref=${element}
    class=${wide ? "wide" : ""}
    aria-labelledby=${id}
    onCancel=${(event) => {
      if (event.target !== element.current) return;
      event.preventDefault();
      close();
    }}
    onMouseDown=${(event) => event.target === element.current && close()}
  >
    <div class="dialog-box">
      <header>
        <h2 id=${id}>${title}</h2>
        <button type="button" class="quiet icon-only" aria-label="Close" onClick=${close}><${Icon} name="close" /></button>
      </header>
      ${children}
    </div>
  </dialog>`;
}

// A form in a dialogue. `submit` does it and may throw; then what went wrong stands above the buttons.
// What takes a while says meanwhile how far it is (`progress`): then the page behind goes on being asked for.
export function FormDialog({ title, close, action, submit, done = null, danger = false, disabled = false, wide = false, progress = null, children }) {
  const work = useAction(progress !== null);
  async function submitted(event) {
    event.preventDefault();
    if (await work.run(submit, done)) close();
  }
  return html`<${Dialog} title=${title} close=${close} wide=${wide}>
    <form onSubmit=${submitted}>
      <div class="dialog-body">
        ${children}
        ${work.busy && progress ? html`<p class="progress" role="status"><span class="spinner"></span>${progress}</p>` : null}
        <${Problem} error=${work.error} />
      </div>
      <footer>
        <button type="button" onClick=${close}>${work.busy && progress ? "Close" : "Cancel"}</button>
        <button type="submit" class=${danger ? "danger" : "primary"} disabled=${work.busy || disabled}>${action}</button>
      </footer>
    </form>
  <//>`;
}

// Asks before something that cannot be undone; with `typed`, that must be typed first.
export function Confirm({ title, close, action, submit, done = null, typed = null, children }) {
  const [text, setText] = useState("");
  return html`<${FormDialog}
    title=${title}
    close=${close}
    action=${action}
    submit=${submit}
    done=${done}
    danger=${true}
    disabled=${typed !== null && text !== typed}
  >
    ${children}
    ${typed === null
      ? null
      : html`<label class="field">
          <span>Type <code class="wrap">${typed}</code> to confirm</span>
          <input type="text" value=${text} autofocus autocomplete="off" spellcheck="false" onInput=${(event) => setText(event.target.value)} />
        </label>`}
  <//>`;
}
