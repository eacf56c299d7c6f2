// The dead letters of a topic: why they died, and sending them back.
import { post, url, withQuery } from "../api.js";
import { Content, Preview } from "../components/content.js";
import { Confirm, Dialog, FormDialog } from "../components/dialog.js";
import { Field } from "../components/fields.js";
import { Ago, GroupLink, MessageLink, Num, Time } from "../components/figures.js";
import { Icon } from "../components/icons.js";
import { Answered, Empty } from "../components/states.js";
import { Table } from "../components/table.js";
import { plural, visible } from "../format.js";
import { html, useEffect, useState } from "../html.js";
import { usePoll } from "../poll.js";
import { may } from "../store.js";

const LIMIT = 50;

export function DeadLetters({ topic }) {
  const causes = usePoll(url`/v1/topics/${topic}/dead-letters/causes`, 5000);
  const [trail, setTrail] = useState([""]);
  const list = usePoll(withQuery(url`/v1/topics/${topic}/dead-letters`, { limit: LIMIT, after: trail.at(-1) }), 5000);
  const [picked, setPicked] = useState(new Set());
  const [asking, ask] = useState(null);
  const letters = list.data?.dead_letters ?? [];
  const present = letters.map((letter) => letter.id).join(" ");
  useEffect(() => setPicked((old) => new Set([...old].filter((id) => letters.some((letter) => letter.id === id)))), [present]);
  const close = () => ask(null);
  const ids = [...picked];
  return html`<${Answered} poll=${causes}>
      ${(data) =>
        data.total === 0
          ? html`<div class="card"><${Empty} icon="check" title="Nothing has died here">A message that fails too often comes here with its history, and you can send it back.<//></div>`
          : html`<${Causes} data=${data} ask=${ask} />
              <section class="card">
                <header>
                  <h2>Letters</h2>
                  <span class="muted">${picked.size ? `${picked.size} selected` : "oldest first"}</span>
                  <span class="grow"></span>
                  ${may("admin")
                    ? html`<button type="button" class="small" disabled=${!picked.size} onClick=${() => ask({ what: "redrive", choice: { ids }, count: ids.length, of: "the selected" })}><${Icon} name="replay" />Redrive selected</button>
                        <button type="button" class="small quiet danger" disabled=${!picked.size} onClick=${() => ask({ what: "purge", choice: { ids }, count: ids.length })}><${Icon} name="trash" />Purge selected…</button>`
                    : null}
                </header>
                <${Answered} poll=${list}>
                  ${() => html`<${Letters} letters=${letters} picked=${picked} setPicked=${setPicked} show=${(letter) => ask({ what: "show", letter })} stale=${list.stale} />`}
                <//>
                <${Turn} trail=${trail} setTrail=${setTrail} after=${letters.length === LIMIT ? list.data?.after : null} />
              </section>`}
    <//>
    ${asking?.what === "redrive" ? html`<${Redrive} topic=${topic} ...${asking} close=${close} />` : null}
    ${asking?.what === "purge" ? html`<${Purge} topic=${topic} ...${asking} close=${close} />` : null}
    ${asking?.what === "show" ? html`<${Letter} letter=${asking.letter} close=${close} />` : null}`;
}

function Causes({ data, ask }) {
  const most = Math.max(...data.causes.map((one) => one.count));
  const redrive = (one) => ask({ what: "redrive", choice: { cause: one.cause, group: one.group }, count: one.count, of: "these" });
  const columns = [
    { title: "Cause", wide: true, cell: (one) => html`<bdi class="cause" title=${one.cause}>${visible(one.cause.slice(0, 300))}</bdi>` },
    { title: "Group", cell: (one) => html`<${GroupLink} name=${one.group} />` },
    { title: "Share", kind: "fate-cell", cell: (one) => html`<div class="fate"><i class="fate-dead" style=${{ width: `${(one.count / most) * 100}%` }}></i></div>` },
    { title: "Letters", num: true, cell: (one) => html`<${Num} value=${one.count} />` },
    { title: "Oldest", num: true, cell: (one) => html`<${Ago} value=${one.oldest} />` },
    { title: "Newest", num: true, cell: (one) => html`<${Ago} value=${one.newest} />` },
    { title: "", num: true, cell: (one) => may("admin") && html`<button type="button" class="small quiet" onClick=${() => redrive(one)}><${Icon} name="replay" />Redrive</button>` },
  ];
  return html`<section class="card">
    <header>
      <h2>By cause</h2>
      <span class="muted">${plural(data.total, "dead letter")}</span>
      <span class="grow"></span>
      ${may("admin")
        ? html`<button type="button" class="small" onClick=${() => ask({ what: "redrive", choice: {}, count: data.total, of: "all" })}><${Icon} name="replay" />Redrive all…</button>
            <button type="button" class="small quiet danger" onClick=${() => ask({ what: "purge", choice: {}, count: data.total })}><${Icon} name="trash" />Purge all…</button>`
        : null}
    </header>
    <${Table} label="Causes" columns=${columns} rows=${data.causes} id=${(one) => `${one.group} ${one.cause}`} />
  </section>`;
}

function Letters({ letters, picked, setPicked, show, stale }) {
  function pick(id, on) {
    const next = new Set(picked);
    if (on) next.add(id);
    else next.delete(id);
    setPicked(next);
  }
  const every = letters.length > 0 && letters.every((letter) => picked.has(letter.id));
  const all = html`<input type="checkbox" aria-label="Select all on this page" checked=${every} onChange=${(event) => setPicked(new Set(event.target.checked ? letters.map((letter) => letter.id) : []))} />`;
  const columns = [
    { title: all, kind: "check-cell", cell: (letter) => html`<input type="checkbox" aria-label=${`Select ${letter.origin}`} checked=${picked.has(letter.id)} onChange=${(event) => pick(letter.id, event.target.checked)} />` },
    { title: "Message", cell: (letter) => html`<${MessageLink} id=${letter.origin} />` },
    { title: "Group", cell: (letter) => html`<${GroupLink} name=${letter.group} />` },
    { title: "Died", cell: (letter) => html`<${Ago} value=${letter.died_at} />` },
    { title: "Failures", num: true, cell: (letter) => html`<${Num} value=${letter.failures} />` },
    { title: "Cause", wide: true, cell: (letter) => html`<bdi class="cause" title=${letter.cause}>${visible(letter.cause.slice(0, 200))}</bdi>` },
    { title: "Value", wide: true, cell: (letter) => html`<${Preview} text=${letter.value} encoding=${letter.encoding} />` },
    { title: "", num: true, cell: (letter) => html`<button type="button" class="small quiet" onClick=${() => show(letter)}>Show</button>` },
  ];
  return html`<${Table} label="Dead letters" columns=${columns} rows=${letters} id=${(letter) => letter.id} stale=${stale} rowClass=${(letter) => (picked.has(letter.id) ? "picked" : "")} />`;
}

function Turn({ trail, setTrail, after }) {
  if (trail.length === 1 && !after) return null;
  return html`<nav class="pager" aria-label="Pages">
    <span class="muted">page ${trail.length}</span>
    <button type="button" class="small" data-page="back" disabled=${trail.length === 1} onClick=${() => setTrail(trail.slice(0, -1))}><${Icon} name="left" />Back</button>
    <button type="button" class="small" data-page="next" disabled=${!after} onClick=${() => setTrail([...trail, after])}>Next<${Icon} name="right" /></button>
  </nav>`;
}

function Redrive({ topic, choice, count, of, close }) {
  const [to, setTo] = useState("");
  const [rate, setRate] = useState("");
  const body = { ...choice, ...(to ? { to } : {}), ...(rate ? { rate: Number(rate) } : {}) };
  const said = (report) => `${plural(report.redriven + report.copied, "message")} redriven${report.skipped ? `, ${report.skipped} skipped` : ""}.`;
  return html`<${FormDialog} title=${`Redrive ${of}: ${plural(count, "dead letter")}`} action="Redrive" close=${close} submit=${() => post(url`/v1/topics/${topic}/dead-letters/redrive`, body)} done=${said}>
    <p class="muted">They go back to the group that gave them up, at their old place, and are tried again from the start.</p>
    ${choice.cause ? html`<p><bdi class="cause">${visible(choice.cause.slice(0, 300))}</bdi></p>` : null}
    <div class="pair">
      <${Field} label="To another topic" value=${to} change=${setTo} hint="Empty: back to where they were" />
      <${Field} label="Messages a second" type="number" min="0.001" step="any" value=${rate} change=${setRate} hint="Empty: as fast as it goes" />
    </div>
  <//>`;
}

function Purge({ topic, choice, count, close }) {
  return html`<${Confirm} title=${`Purge ${plural(count, "dead letter")}?`} action="Purge" typed=${choice.ids ? null : topic} close=${close} submit=${() => post(url`/v1/topics/${topic}/dead-letters/purge`, choice)} done=${(report) => `${plural(report.purged, "dead letter")} purged.`}>
    <p>They are thrown away, and nobody can send them back any more.</p>
  <//>`;
}

function Letter({ letter, close }) {
  return html`<${Dialog} title="Dead letter" close=${close} wide>
    <div class="dialog-body">
      <dl class="facts column">
        <div><dt>Message</dt><dd><${MessageLink} id=${letter.origin} /></dd></div>
        <div><dt>Group</dt><dd><${GroupLink} name=${letter.group} />${letter.consumer ? html` <span class="muted mono">${letter.consumer}</span>` : null}</dd></div>
        <div><dt>Cause</dt><dd><bdi class="cause wrap">${visible(letter.cause)}</bdi></dd></div>
        <div><dt>Published</dt><dd><${Time} value=${letter.published_at} fraction /></dd></div>
        <div><dt>Died</dt><dd><${Time} value=${letter.died_at} fraction /></dd></div>
        <div><dt>Tries</dt><dd>${plural(letter.deliveries, "delivery", "deliveries")}, ${plural(letter.failures, "failure")}</dd></div>
        ${letter.key === null ? null : html`<div><dt>Key</dt><dd><bdi class="mono wrap">${visible(letter.key.slice(0, 2000))}</bdi></dd></div>`}
      </dl>
      <${Content} value=${letter.value} encoding=${letter.encoding} />
      <h3 class="inner">History</h3>
      <ol class="history mono">${letter.history.map((line, number) => html`<li key=${number}><bdi>${visible(line)}</bdi></li>`)}</ol>
    </div>
  <//>`;
}
