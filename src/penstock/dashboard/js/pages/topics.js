// All topics: found, sorted and paged by the server, for there may be thousands.
import { post, withQuery } from "../api.js";
import { FormDialog } from "../components/dialog.js";
import { Choice, DurationField, Field } from "../components/fields.js";
import { Bytes, Num, TopicLink } from "../components/figures.js";
import { Icon } from "../components/icons.js";
import { Answered, Empty, HowToPublish } from "../components/states.js";
import { Pager, Search, Table } from "../components/table.js";
import { parseDuration, shortDuration } from "../format.js";
import { html, useState } from "../html.js";
import { usePoll } from "../poll.js";
import { go, setQuery } from "../router.js";
import { may } from "../store.js";

const LIMIT = 50;

const COLUMNS = [
  { title: "Topic", sort: "name", wide: true, cell: (topic) => html`<${TopicLink} name=${topic.name} />` },
  { title: "Messages", num: true, sort: "messages", cell: (topic) => html`<${Num} value=${topic.messages} quiet />` },
  { title: "Backlog", num: true, sort: "backlog", hint: "what its groups have to do, all together", cell: (topic) => html`<${Num} value=${topic.backlog} quiet />` },
  { title: "Size", num: true, sort: "bytes", cell: (topic) => html`<${Bytes} value=${topic.bytes} />` },
  { title: "Partitions", num: true, cell: (topic) => html`<${Num} value=${topic.partitions} />` },
  { title: "Segments", num: true, cell: (topic) => html`<${Num} value=${topic.segments} quiet />` },
  { title: "Groups", num: true, cell: (topic) => html`<${Num} value=${topic.groups} quiet />` },
  { title: "Retention", num: true, cell: (topic) => html`<span class="num">${shortDuration(topic.config.retention_age)}</span>` },
];

export function Topics({ query }) {
  const { search = "", sort = "name", order = "asc" } = query;
  const skip = Number(query.skip) || 0;
  const [making, make] = useState(false);
  const poll = usePoll(withQuery("/v1/topics", { search, sort, order, skip, limit: LIMIT }), 5000);
  return html`<header class="page-head">
      <h1>Topics</h1>
      <span class="grow"></span>
      <${Search} label="Find a topic" value=${search} change=${(text) => setQuery({ search: text, skip: "" })} />
      ${may("admin") ? html`<button type="button" class="primary" onClick=${() => make(true)}><${Icon} name="plus" />New topic</button>` : null}
    </header>
    <${Answered} poll=${poll}>
      ${(data) =>
        data.total === 0
          ? html`<div class="card"><${Empty} icon="topics" title=${search ? `No topic has “${search}” in its name` : "No topics yet"}>
              ${search ? "A * stands for anything: orders.*.eu" : html`A topic is made by its first message:<${HowToPublish} />`}
            <//></div>`
          : html`<div class="card">
              <${Table}
                label="Topics"
                columns=${COLUMNS}
                rows=${data.topics}
                id=${(topic) => topic.name}
                stale=${poll.stale}
                sort=${{ by: sort, order, change: (by, next) => setQuery({ sort: by, order: next, skip: "" }) }}
              />
              <${Pager} skip=${skip} limit=${LIMIT} total=${data.total} what="topics" change=${(next) => setQuery({ skip: next || "" })} />
            </div>`}
    <//>
    ${making ? html`<${NewTopic} close=${() => make(false)} />` : null}`;
}

function NewTopic({ close }) {
  const [name, setName] = useState("");
  const [partitions, setPartitions] = useState("1");
  const [spread, setSpread] = useState("1");
  const [retention, setRetention] = useState("7d");
  const [order, setOrder] = useState("lane");
  async function submit() {
    const age = parseDuration(retention);
    await post("/v1/topics", { name, partitions: Number(partitions), spread: Number(spread), retention_age: age, order });
    go(["topics", name]);
  }
  return html`<${FormDialog} title="New topic" action="Make it" close=${close} submit=${submit} disabled=${Number.isNaN(parseDuration(retention))}>
    <${Field} label="Name" value=${name} change=${setName} required autofocus maxlength="200" pattern="[A-Za-z0-9._\\-]+" hint="Letters, digits, dots, dashes and underscores" />
    <div class="pair">
      <${Field} label="Partitions" type="number" min="1" max="65536" required value=${partitions} change=${setPartitions} hint="Stays as it is" />
      <${Field} label="Spread" type="number" min="1" max="1024" required value=${spread} change=${setSpread} hint="Shards that share the partitions; stays as it is" />
    </div>
    <div class="pair">
      <${DurationField} label="Retention" value=${retention} change=${setRetention} hint="Such as 7d; empty: for ever" />
      <${Choice} label="Order" value=${order} change=${setOrder} options=${[["lane", "by lane, then by offset"], ["key", "also one message of a key at a time"]]} hint="Stays as it is" />
    </div>
  <//>`;
}
