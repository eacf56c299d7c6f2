// Publishing a message by hand.
import { get, post, url } from "../api.js";
import { Area, DurationField, Field, PriorityField, Segments, TopicField } from "../components/fields.js";
import { MessageLink } from "../components/figures.js";
import { Icon } from "../components/icons.js";
import { Problem } from "../components/states.js";
import { isoFromInput, parseDuration, time } from "../format.js";
import { html, useEffect, useState } from "../html.js";
import { useAction } from "../poll.js";

const FRESH = { value: "", key: "", encoding: "utf8", headers: [], priority: "128", when: "now", delay: "10m", at: "", partition: "", dedupe: "", expires: "" };
const REMEMBERED = 5;

export function Publish({ query }) {
  return html`<header class="page-head"><h1>Publish</h1><span class="muted">It is on disk when its id appears.</span></header>
    <div class="card pad"><${PublishForm} topic=${query.topic ?? ""} like=${query.like} choose /></div>`;
}

export function PublishForm({ topic: given, like = null, choose = false }) {
  const [topic, setTopic] = useState(given);
  const [form, setForm] = useState(FRESH);
  const [sent, setSent] = useState([]);
  const work = useAction();
  const set = (name) => (value) => setForm((old) => ({ ...old, [name]: value }));
  const wrong = (form.when === "delay" && !(parseDuration(form.delay) >= 0)) || Number.isNaN(parseDuration(form.expires));

  useEffect(() => {
    if (like) fillIn(like, setForm);
  }, [like]);

  async function submitted(event) {
    event.preventDefault();
    await work.run(async () => {
      const done = await post(url`/v1/topics/${topic}/publish`, bodyOf(form));
      setSent((old) => [done, ...old].slice(0, REMEMBERED));
    });
  }

  function pressed(event) {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) event.currentTarget.requestSubmit();
  }

  return html`<form class="publish" onSubmit=${submitted} onKeyDown=${pressed}>
    <div>
      ${choose ? html`<${TopicField} value=${topic} change=${setTopic} pattern="[A-Za-z0-9._\\-]+" hint="A topic that is not there yet is made" />` : null}
      <${Area} label="Value" value=${form.value} change=${set("value")} rows=${10} placeholder='{"order": 17, "item": "two coffees"}' />
      <${Headers} headers=${form.headers} change=${set("headers")} />
    </div>
    <div>
      <${Field} label="Key" value=${form.key} change=${set("key")} hint="Messages with the same key go to the same partition" />
      <${PriorityField} value=${form.priority} change=${set("priority")} />
      <div class="field">
        <span>Deliver</span>
        <${Segments} label="Deliver" value=${form.when} change=${set("when")} options=${[["now", "Now"], ["delay", "After a delay"], ["at", "At a time"]]} />
      </div>
      ${form.when === "delay" ? html`<${DurationField} label="Delay" value=${form.delay} change=${set("delay")} required />` : null}
      ${form.when === "at" ? html`<${Field} label="At" type="datetime-local" step="1" required value=${form.at} change=${set("at")} />` : null}
      <details>
        <summary>More</summary>
        <div class="grid">
          <${Field} label="Partition" type="number" min="0" value=${form.partition} change=${set("partition")} hint="Empty: by key, or in turn" />
          <${DurationField} label="Expires after" value=${form.expires} change=${set("expires")} hint="Empty: never" />
          <${Field} label="Dedupe id" value=${form.dedupe} change=${set("dedupe")} hint="Published again with it, it is taken once" />
          <div class="field">
            <span>Key and value are</span>
            <${Segments} label="Key and value are" value=${form.encoding} change=${set("encoding")} options=${[["utf8", "Text"], ["base64", "Base64"]]} />
          </div>
        </div>
      </details>
    </div>
    <${Problem} error=${work.error} />
    <div class="form-end">
      <button type="submit" class="primary" disabled=${work.busy || wrong || topic === ""}><${Icon} name="publish" />Publish</button>
      <span class="muted"><kbd>Ctrl</kbd> <kbd>Enter</kbd></span>
    </div>
    ${sent.length ? html`<${Sent} sent=${sent} />` : null}
  </form>`;
}

function bodyOf(form) {
  const headers = form.headers.filter(([name]) => name !== "");
  const expires = parseDuration(form.expires);
  return {
    value: form.value,
    encoding: form.encoding,
    priority: Number(form.priority),
    ...(form.key === "" ? {} : { key: form.key }),
    ...(headers.length ? { headers: Object.fromEntries(headers) } : {}),
    ...(form.when === "delay" ? { delay: parseDuration(form.delay) } : {}),
    ...(form.when === "at" ? { deliver_at: isoFromInput(form.at) } : {}),
    ...(form.partition === "" ? {} : { partition: Number(form.partition) }),
    ...(form.dedupe === "" ? {} : { dedupe_id: form.dedupe }),
    ...(expires === null ? {} : { expires_in: expires }),
  };
}

async function fillIn(id, setForm) {
  const [topic, partition, offset] = id.split("/");
  try {
    const message = await get(url`/v1/topics/${topic}/messages/${partition}/${offset}`);
    const { value, key, encoding, priority, headers } = message;
    setForm((old) => ({ ...old, value, key: key ?? "", encoding, priority: String(priority), headers: Object.entries(headers ?? {}) }));
  } catch {
    // It is gone: the form stays empty.
  }
}

function Headers({ headers, change }) {
  const put = (at, pair) => change(headers.map((old, number) => (number === at ? pair : old)));
  return html`<fieldset class="headers">
    <legend>Headers</legend>
    ${headers.map(([name, value], number) => html`<div key=${number} class="header-row">
      <input type="text" class="mono" aria-label="Header name" placeholder="name" value=${name} onInput=${(event) => put(number, [event.target.value, value])} />
      <input type="text" class="mono" aria-label="Header value" placeholder="value" value=${value} onInput=${(event) => put(number, [name, event.target.value])} />
      <button type="button" class="quiet icon-only" aria-label="Remove this header" onClick=${() => change(headers.filter((_, other) => other !== number))}><${Icon} name="close" /></button>
    </div>`)}
    <button type="button" class="small" onClick=${() => change([...headers, ["", ""]])}><${Icon} name="plus" />Add a header</button>
  </fieldset>`;
}

function Sent({ sent }) {
  return html`<div class="sent" role="status">
    <h3>Published</h3>
    <ul>
      ${sent.map((one) => html`<li key=${one.id}><${Icon} name="check" /><${MessageLink} id=${one.id} />${one.delayed && one.deliver_at ? html` <span class="muted">due ${time(one.deliver_at)}</span>` : null}</li>`)}
    </ul>
  </div>`;
}
