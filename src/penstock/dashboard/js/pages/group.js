// One group: on each of its topics, how far it is, who works in it, and on what.
import { post, remove, url, withQuery } from "../api.js";
import { Confirm, FormDialog } from "../components/dialog.js";
import { Choice, Field, Segments } from "../components/fields.js";
import { GroupBadges, Lasting, Num, Offset, Tile, TopicLink } from "../components/figures.js";
import { Icon } from "../components/icons.js";
import { Answered, Command, Empty } from "../components/states.js";
import { Table } from "../components/table.js";
import { exact, isoFromInput, localInput } from "../format.js";
import { html, useState } from "../html.js";
import { act, usePoll } from "../poll.js";
import { go, href } from "../router.js";
import { may } from "../store.js";
import { FATES, Fate } from "./fate.js";

const AT_FIRST = 32;

export function Group({ name }) {
  const poll = usePoll(url`/v1/groups/${name}`, 2000);
  const [asking, ask] = useState(null);
  const close = () => ask(null);
  return html`<header class="page-head">
      <h1 class="long" title=${name}><a class="crumb" href=${href(["groups"])}>Groups</a><span class="slash">/</span>${name}</h1>
    </header>
    <${Answered} poll=${poll}>
      ${(data) => data.topics.map((group) => html`<${OnTopic} key=${group.topic} group=${group} ask=${ask} />`)}
    <//>
    ${asking?.what === "seek" ? html`<${Seek} group=${asking.group} close=${close} />` : null}
    ${asking?.what === "delete" ? html`<${Delete} group=${asking.group} last=${poll.data?.topics.length === 1} close=${close} />` : null}`;
}

function OnTopic({ group, ask }) {
  return html`<section class="card" aria-label=${group.topic}>
    <header>
      <h2>on <${TopicLink} name=${group.topic} /></h2>
      <${GroupBadges} group=${group} />
      <span class="grow"></span>
      ${may("consume")
        ? html`${group.kind === "consumers" ? html`<${Pause} group=${group} />` : null}
            <button type="button" class="small" onClick=${() => ask({ what: "seek", group })}><${Icon} name="replay" />Seek…</button>
            <button type="button" class="small quiet danger" onClick=${() => ask({ what: "delete", group })}><${Icon} name="trash" />Delete…</button>`
        : null}
    </header>
    <div class="tiles inside">
      <${Tile} label="Lag" note=${group.oldest_unacked_s === null ? "nothing to do" : html`oldest <${Lasting} seconds=${group.oldest_unacked_s} />`}><${Num} value=${group.lag} /><//>
      <${Tile} label="Ready"><${Num} value=${group.ready} /><//>
      <${Tile} label="In flight"><${Num} value=${group.leased} /><//>
      <${Tile} label="Retrying"><${Num} value=${group.retrying} /><//>
      <${Tile} label="Delayed"><${Num} value=${group.delayed} /><//>
      <${Tile} label="Dead" tone=${group.dead ? "warm" : ""}><${Num} value=${group.dead} /><//>
    </div>
    <div class="fate-box"><${Fate} group=${group} /><${Legend} group=${group} /></div>
    <div class="two inside">
      <${Members} group=${group} />
      <${Positions} group=${group} />
    </div>
  </section>`;
}

function Pause({ group }) {
  const [verb, done] = group.settings.paused ? ["resume", "The group is resumed."] : ["pause", "The group is paused: it is handed nothing."];
  const change = () => act(() => post(url`/v1/groups/${group.group}/${verb}`, { topic: group.topic }), done);
  return html`<button type="button" class="small" onClick=${change}><${Icon} name=${group.settings.paused ? "play" : "pause"} />${group.settings.paused ? "Resume" : "Pause"}</button>`;
}

function Legend({ group }) {
  return html`<ul class="fate-legend">
    ${FATES.filter(([name]) => group[name] > 0).map(([name, text]) => html`<li key=${name}><i class="fate-${name}"></i>${text} <${Num} value=${group[name]} /></li>`)}
  </ul>`;
}

function Members({ group }) {
  const columns = [
    { title: "Member", wide: true, cell: (member) => html`<span class="name mono" title=${member.name}>${member.name}</span>` },
    { title: "Mode", cell: (member) => member.mode },
    { title: "In flight", num: true, cell: (member) => html`<${Num} value=${member.in_flight} quiet />` },
    { title: "Partitions", cell: (member) => html`<span class="num">${member.mode === "assigned" ? member.partitions.join(", ") || "none" : "all"}</span>` },
  ];
  return html`<div>
    <h3 class="inner">Members</h3>
    ${group.members.length
      ? html`<${Table} label="Members" columns=${columns} rows=${group.members} id=${(member) => member.name} />`
      : html`<${Empty} icon="groups" title="Nobody is here">What is ready waits for a consumer: <${Command} text=${`penstock consume ${group.topic} --group ${group.group}`} /><//>`}
  </div>`;
}

function Positions({ group }) {
  const [all, setAll] = useState(false);
  const owners = new Map(group.members.flatMap((member) => member.partitions.map((partition) => [partition, member.name])));
  const rows = group.positions.map((position, partition) => ({ partition, position, owner: owners.get(partition) }));
  const columns = [
    { title: "Partition", cell: (row) => html`<span class="num">${row.partition}</span>` },
    { title: "Done up to", num: true, hint: "the first offset that is not done", cell: (row) => html`<${Offset} value=${row.position} />` },
    { title: "Assigned to", wide: true, cell: (row) => html`<span class="name mono" title=${row.owner}>${row.owner ?? "–"}</span>` },
  ];
  return html`<div>
    <h3 class="inner">Partitions</h3>
    <${Table} label="Partitions" columns=${columns} rows=${all ? rows : rows.slice(0, AT_FIRST)} id=${(row) => row.partition} />
    ${!all && rows.length > AT_FIRST ? html`<div class="more"><button type="button" class="small" onClick=${() => setAll(true)}>Show all ${exact(rows.length)}</button></div>` : null}
  </div>`;
}

function Seek({ group, close }) {
  const [by, setBy] = useState("earliest");
  const [at, setAt] = useState(localInput(new Date(Date.now() - 3600_000)));
  const [offset, setOffset] = useState("0");
  const [partition, setPartition] = useState("");
  const to = { earliest: "earliest", latest: "latest", time: isoFromInput(at), offset: Number(offset) }[by];
  const submit = () => post(url`/v1/groups/${group.group}/seek`, { topic: group.topic, to, ...(partition === "" ? {} : { partition: Number(partition) }) });
  const parts = group.positions.map((_, number) => [String(number), `partition ${number}`]);
  return html`<${FormDialog} title=${`Seek ${group.group}`} action="Seek" close=${close} submit=${submit} done="The group is moved.">
    <p class="muted">The group goes on from there: what lies behind comes again, what lies before is passed over.</p>
    <${Segments} label="To" value=${by} change=${setBy} options=${[["earliest", "The beginning"], ["latest", "The end"], ["time", "A time"], ["offset", "An offset"]]} />
    ${by === "time" ? html`<${Field} label="Time" type="datetime-local" step="1" required value=${at} change=${setAt} />` : null}
    ${by === "offset" ? html`<${Field} label="Offset" type="number" min="0" required value=${offset} change=${setOffset} />` : null}
    ${parts.length > 1 ? html`<${Choice} label="Partition" value=${partition} change=${setPartition} options=${[["", "all partitions"], ...parts]} />` : null}
  <//>`;
}

function Delete({ group, last, close }) {
  async function submit() {
    await remove(withQuery(url`/v1/groups/${group.group}`, { topic: group.topic }));
    if (last) go(["groups"]);
  }
  return html`<${Confirm} title="Delete this group?" action="Delete it" typed=${group.group} close=${close} submit=${submit} done="The group is deleted.">
    <p>What it has done on <b class="wrap">${group.topic}</b> is forgotten. The messages stay.</p>
  <//>`;
}
