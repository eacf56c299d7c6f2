// Messages that are published again and again.
import { post, put, remove, url } from "../api.js";
import { Confirm, FormDialog } from "../components/dialog.js";
import { Area, Field, PriorityField, TopicField } from "../components/fields.js";
import { Ago, Lane, Time, TopicLink } from "../components/figures.js";
import { Preview } from "../components/content.js";
import { Icon } from "../components/icons.js";
import { Answered, Command, Empty } from "../components/states.js";
import { Table } from "../components/table.js";
import { html, useState } from "../html.js";
import { act, usePoll } from "../poll.js";
import { may } from "../store.js";

export function Schedules() {
  const poll = usePoll("/v1/schedules", 3000);
  const [adding, add] = useState(false);
  const [removing, setRemoving] = useState(null);
  const turn = (one) => act(() => post(one.paused ? url`/v1/schedules/${one.name}/resume` : url`/v1/schedules/${one.name}/pause`), one.paused ? `${one.name} goes on.` : `${one.name} is paused.`);
  const columns = [
    { title: "Name", wide: true, cell: (one) => html`<span class="name" title=${one.name}>${one.name}</span>` },
    { title: "When", cell: (one) => html`<code>${one.cron}</code> <span class="muted">${one.zone}</span>` },
    { title: "Next", cell: (one) => (one.paused ? html`<span class="badge">paused</span>` : html`<${Ago} value=${one.next_at} /> <span class="muted"><${Time} value=${one.next_at} /></span>`) },
    { title: "Topic", wide: true, cell: (one) => html`<${TopicLink} name=${one.topic} />` },
    { title: "Lane", cell: (one) => html`<${Lane} priority=${one.priority} />` },
    { title: "Value", wide: true, cell: (one) => html`<${Preview} text=${one.value} encoding=${one.encoding} />` },
    {
      title: "",
      num: true,
      cell: (one) => may("admin") && html`<span class="row-buttons">
        <button type="button" class="small quiet" onClick=${() => turn(one)}><${Icon} name=${one.paused ? "play" : "pause"} />${one.paused ? "Resume" : "Pause"}</button>
        <button type="button" class="small quiet danger" onClick=${() => setRemoving(one)}><${Icon} name="trash" />Remove…</button>
      </span>`,
    },
  ];
  return html`<header class="page-head">
      <h1>Schedules</h1>
      <span class="grow"></span>
      ${may("publish") ? html`<button type="button" class="primary" onClick=${() => add(true)}><${Icon} name="plus" />New schedule</button>` : null}
    </header>
    <${Answered} poll=${poll}>
      ${(data) => html`<div class="card">
        ${data.schedules.length
          ? html`<${Table} label="Schedules" columns=${columns} rows=${data.schedules} id=${(one) => one.name} rowClass=${(one) => (one.paused ? "off" : "")} />`
          : html`<${Empty} icon="schedules" title="No schedules yet">
              A schedule publishes a message again and again, as cron does, once each time whatever restarts meanwhile.
              <${Command} text="penstock schedule add nightly '0 3 * * *' reports 'make the report' --zone Europe/Berlin" />
            <//>`}
      </div>`}
    <//>
    ${adding ? html`<${Add} close=${() => add(false)} />` : null}
    ${removing
      ? html`<${Confirm} title=${`Remove ${removing.name}?`} action="Remove it" close=${() => setRemoving(null)} submit=${() => remove(url`/v1/schedules/${removing.name}`)} done="The schedule is removed.">
          <p>It publishes nothing any more. Messages that it has published stay.</p>
        <//>`
      : null}`;
}

function Add({ close }) {
  const [name, setName] = useState("");
  const [cron, setCron] = useState("*/5 * * * *");
  const [zone, setZone] = useState(Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC");
  const [topic, setTopic] = useState("");
  const [key, setKey] = useState("");
  const [value, setValue] = useState("");
  const [priority, setPriority] = useState("128");
  const submit = () => put(url`/v1/schedules/${name}`, { cron, zone, topic, value, priority: Number(priority), ...(key ? { key } : {}) });
  return html`<${FormDialog} title="New schedule" action="Add it" close=${close} submit=${submit} done=${`${name} is scheduled.`} wide>
    <div class="pair">
      <${Field} label="Name" value=${name} change=${setName} required autofocus maxlength="200" />
      <${TopicField} value=${topic} change=${setTopic} />
    </div>
    <div class="pair">
      <${Field} label="When" value=${cron} change=${setCron} required mono hint="Minute, hour, day, month, weekday, as in cron" />
      <${Field} label="Time zone" value=${zone} change=${setZone} required />
    </div>
    <${Area} label="Value" value=${value} change=${setValue} rows=${4} />
    <div class="pair">
      <${Field} label="Key" value=${key} change=${setKey} />
      <${PriorityField} value=${priority} change=${setPriority} />
    </div>
  <//>`;
}
