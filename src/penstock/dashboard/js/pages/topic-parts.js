// What a topic consists of: groups, lanes, partitions.
import { Bytes, GroupBadges, GroupLink, Lane, Lasting, Num, Offset } from "../components/figures.js";
import { Empty } from "../components/states.js";
import { Table } from "../components/table.js";
import { exact, number } from "../format.js";
import { html, useState } from "../html.js";
import { href } from "../router.js";
import { Fate } from "./fate.js";

const AT_FIRST = 32;

export function TopicParts({ topic }) {
  return html`<${GroupsOf} topic=${topic} />
    <div class="two wide-left">
      <${Partitions} topic=${topic} />
      <${Lanes} lanes=${topic.lanes} />
    </div>`;
}

function GroupsOf({ topic }) {
  const columns = [
    { title: "Group", wide: true, cell: (group) => html`<${GroupLink} name=${group.group} /><${GroupBadges} group=${group} />` },
    { title: "Progress", kind: "fate-cell", cell: (group) => html`<${Fate} group=${group} />` },
    { title: "Lag", num: true, hint: "messages that are not done", cell: (group) => html`<${Num} value=${group.lag} quiet />` },
    { title: "In flight", num: true, cell: (group) => html`<${Num} value=${group.leased} quiet />` },
    { title: "Retrying", num: true, cell: (group) => html`<${Num} value=${group.retrying} quiet />` },
    { title: "Dead", num: true, cell: (group) => html`<${Num} value=${group.dead} quiet />` },
    { title: "Oldest", num: true, hint: "the age of the oldest message that is not done", cell: (group) => html`<${Lasting} seconds=${group.oldest_unacked_s} />` },
    { title: "Members", num: true, cell: (group) => html`<${Num} value=${group.members.length} quiet />` },
  ];
  return html`<section class="card">
    <header><h2>Groups</h2></header>
    ${topic.group_list.length
      ? html`<${Table} label="Groups" columns=${columns} rows=${topic.group_list} id=${(group) => group.group} />`
      : html`<${Empty} icon="groups" title="Nobody consumes this topic yet">A group is made by its first consumer: <code>penstock consume ${topic.name} --group workers</code><//>`}
  </section>`;
}

function Partitions({ topic }) {
  const [all, setAll] = useState(false);
  const list = topic.partition_list;
  const columns = [
    { title: "Partition", cell: (part) => html`<a class="num" href=${href(["topics", topic.name, "messages"], { partition: part.partition })}>${part.partition}</a>` },
    { title: "First", num: true, hint: "the lowest offset that can still be read", cell: (part) => html`<${Offset} value=${part.first_offset} />` },
    { title: "End", num: true, hint: "the offset that the next message gets", cell: (part) => html`<${Offset} value=${part.end_offset} />` },
    { title: "Messages", num: true, cell: (part) => html`<${Num} value=${part.messages} quiet />` },
    { title: "Segments", num: true, cell: (part) => html`<${Num} value=${part.segments} quiet />` },
    { title: "Parquet", num: true, cell: (part) => html`<${Bytes} value=${part.segment_bytes} />` },
    { title: "Journal", num: true, cell: (part) => html`<${Bytes} value=${part.journal_bytes} />` },
  ];
  return html`<section class="card">
    <header><h2>Partitions</h2></header>
    <${Table} label="Partitions" columns=${columns} rows=${all ? list : list.slice(0, AT_FIRST)} id=${(part) => part.partition} />
    ${!all && list.length > AT_FIRST ? html`<div class="more"><button type="button" class="small" onClick=${() => setAll(true)}>Show all ${exact(list.length)}</button></div>` : null}
  </section>`;
}

function Lanes({ lanes = [] }) {
  const most = Math.max(1, ...lanes.map((one) => one.messages));
  return html`<section class="card">
    <header><h2>Lanes</h2><span class="muted">not done yet, by priority</span></header>
    ${lanes.length
      ? html`<ul class="bars">
          ${lanes.map((one) => html`<li key=${one.priority}>
            <${Lane} priority=${one.priority} />
            <span class="bar"><i style=${{ width: `${Math.max(1, (one.messages / most) * 100)}%` }}></i></span>
            <span class="num" title=${exact(one.messages)}>${number(one.messages)}</span>
          </li>`)}
        </ul>`
      : html`<${Empty} icon="check" title="Nothing waits">What groups have to do stands here by priority, while somebody consumes.<//>`}
  </section>`;
}
