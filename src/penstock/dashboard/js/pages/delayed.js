// Messages of a topic that are not due yet.
import { patch, remove, url, withQuery } from "../api.js";
import { FormDialog } from "../components/dialog.js";
import { DurationField, Field, Segments } from "../components/fields.js";
import { Ago, MessageLink, Time } from "../components/figures.js";
import { Icon } from "../components/icons.js";
import { Answered, Empty, Command } from "../components/states.js";
import { Table } from "../components/table.js";
import { exact, isoFromInput, localInput, parseDuration } from "../format.js";
import { html, useState } from "../html.js";
import { act, usePoll } from "../poll.js";
import { setQuery } from "../router.js";
import { may } from "../store.js";

const LIMIT = 50;

export function Delayed({ topic, query }) {
  const skip = Number(query.skip) || 0;
  const [moving, move] = useState(null);
  const poll = usePoll(withQuery(url`/v1/topics/${topic}/delayed`, { skip, limit: LIMIT }), 2000);
  const cancel = (one) => act(() => remove(url`/v1/topics/${topic}/delayed/${one.partition}/${one.offset}`), `${one.id} is cancelled.`);
  const columns = [
    { title: "Message", wide: true, cell: (one) => html`<${MessageLink} id=${one.id} />` },
    { title: "Due", cell: (one) => html`<${Ago} value=${one.due_at} />` },
    { title: "At", cell: (one) => html`<${Time} value=${one.due_at} />` },
    {
      title: "",
      num: true,
      cell: (one) => may("publish") && html`<span class="row-buttons">
        <button type="button" class="small quiet" onClick=${() => move(one)}><${Icon} name="delayed" />Reschedule…</button>
        <button type="button" class="small quiet danger" onClick=${() => cancel(one)}><${Icon} name="close" />Cancel</button>
      </span>`,
    },
  ];
  return html`<${Answered} poll=${poll}>
      ${(data) => html`<div class="card">
        ${data.delayed.length || skip
          ? html`<${Table} label="Delayed messages" columns=${columns} rows=${data.delayed} id=${(one) => one.id} stale=${poll.stale} />
              <${Turn} skip=${skip} count=${data.delayed.length} more=${data.more} />`
          : html`<${Empty} icon="delayed" title="Nothing waits">
              A message can be published now and delivered later; until it is due, it can be cancelled.
              <${Command} text=${`penstock publish ${topic} 'a cake' --delay 20m`} />
            <//>`}
      </div>`}
    <//>
    ${moving ? html`<${Reschedule} one=${moving} topic=${topic} close=${() => move(null)} />` : null}`;
}

function Turn({ skip, count, more }) {
  return html`<nav class="pager" aria-label="Pages">
    <span class="muted">${exact(skip + Math.min(1, count))}–${exact(skip + count)}, the first due first</span>
    <button type="button" class="small" data-page="back" disabled=${skip === 0} onClick=${() => setQuery({ skip: Math.max(0, skip - LIMIT) || "" })}><${Icon} name="left" />Back</button>
    <button type="button" class="small" data-page="next" disabled=${!more} onClick=${() => setQuery({ skip: skip + LIMIT })}>Next<${Icon} name="right" /></button>
  </nav>`;
}

function Reschedule({ one, topic, close }) {
  const [by, setBy] = useState("delay");
  const [delay, setDelay] = useState("10m");
  const [at, setAt] = useState(localInput(new Date(one.due_at)));
  const submit = () =>
    patch(url`/v1/topics/${topic}/delayed/${one.partition}/${one.offset}`, by === "delay" ? { delay: parseDuration(delay) } : { deliver_at: isoFromInput(at) });
  return html`<${FormDialog} title="Reschedule" action="Reschedule" close=${close} submit=${submit} done=${`${one.id} is rescheduled.`} disabled=${by === "delay" && !(parseDuration(delay) >= 0)}>
    <p class="muted">${one.id} falls due <${Ago} value=${one.due_at} />.</p>
    <${Segments} label="New time" value=${by} change=${setBy} options=${[["delay", "From now"], ["at", "At a time"]]} />
    ${by === "delay"
      ? html`<${DurationField} label="In" value=${delay} change=${setDelay} autofocus required />`
      : html`<${Field} label="At" type="datetime-local" step="1" required value=${at} change=${setAt} />`}
  <//>`;
}
