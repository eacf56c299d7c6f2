// One topic: its numbers, and tabs with what is in it.
import { remove, url } from "../api.js";
import { Confirm } from "../components/dialog.js";
import { Bytes, Num, Tile } from "../components/figures.js";
import { Icon } from "../components/icons.js";
import { Answered } from "../components/states.js";
import { plural } from "../format.js";
import { html, useState } from "../html.js";
import { usePoll } from "../poll.js";
import { go, href, topicHref } from "../router.js";
import { may } from "../store.js";
import { DeadLetters } from "./dead-letters.js";
import { Delayed } from "./delayed.js";
import { Messages } from "./messages.js";
import { PublishForm } from "./publish.js";
import { Replay } from "./replay.js";
import { TopicOptions } from "./topic-options.js";
import { TopicParts } from "./topic-parts.js";

export const TABS = [
  ["", "Overview"],
  ["messages", "Messages"],
  ["delayed", "Delayed"],
  ["dead-letters", "Dead letters"],
  ["options", "Options"],
  ["publish", "Publish"],
];

export function Topic({ name, tab, query }) {
  const poll = usePoll(url`/v1/topics/${name}`, 3000);
  const [asking, ask] = useState(null);
  const tabs = TABS.filter(([id]) => id !== "publish" || may("publish"));
  const close = () => ask(null);
  return html`<header class="page-head">
      <h1 class="long" title=${name}><a class="crumb" href=${href(["topics"])}>Topics</a><span class="slash">/</span>${name}</h1>
      <span class="grow"></span>
      ${may("consume") ? html`<button type="button" onClick=${() => ask("replay")}><${Icon} name="replay" />Replay…</button>` : null}
      ${may("admin") ? html`<button type="button" class="quiet danger" onClick=${() => ask("delete")}><${Icon} name="trash" />Delete…</button>` : null}
    </header>
    <${Answered} poll=${poll}>
      ${(topic) => html`<${Tiles} topic=${topic} />
        <nav class="tabs" aria-label="Parts of the topic">
          ${tabs.map(([id, text]) => html`<a key=${id} href=${topicHref(name, ...(id ? [id] : []))} aria-current=${id === tab ? "page" : null}>${text}</a>`)}
        </nav>
        <${Body} topic=${topic} tab=${tab} query=${query} />
        ${asking === "replay" ? html`<${Replay} topic=${topic} close=${close} />` : null}`}
    <//>
    ${asking === "delete" ? html`<${Delete} name=${name} close=${close} />` : null}`;
}

function Tiles({ topic }) {
  return html`<div class="tiles">
    <${Tile} label="Messages" note=${plural(topic.partitions, "partition")}><${Num} value=${topic.messages} /><//>
    <${Tile} label="Backlog" note="of all groups together"><${Num} value=${topic.group_list.reduce((sum, group) => sum + group.lag, 0)} /><//>
    <${Tile} label="Size" note=${topic.journal_bytes ? html`<${Bytes} value=${topic.journal_bytes} /> in the journal` : "all settled"}><${Bytes} value=${topic.bytes} /><//>
    <${Tile} label="Segments" note=${html`<${Bytes} value=${topic.segment_bytes} /> of Parquet`}><${Num} value=${topic.segments} /><//>
    <${Tile} label="Groups" note=${plural(topic.group_list.reduce((sum, group) => sum + group.members.length, 0), "member")}><${Num} value=${topic.group_list.length} /><//>
  </div>`;
}

function Body({ topic, tab, query }) {
  if (tab === "messages") return html`<${Messages} topic=${topic} query=${query} />`;
  if (tab === "delayed") return html`<${Delayed} topic=${topic.name} query=${query} />`;
  if (tab === "dead-letters") return html`<${DeadLetters} topic=${topic.name} />`;
  if (tab === "options") return html`<${TopicOptions} topic=${topic} />`;
  if (tab === "publish") return html`<div class="card pad"><${PublishForm} topic=${topic.name} /></div>`;
  return html`<${TopicParts} topic=${topic} />`;
}

function Delete({ name, close }) {
  async function submit() {
    await remove(url`/v1/topics/${name}`);
    go(["topics"]);
  }
  return html`<${Confirm} title="Delete this topic?" action="Delete it" typed=${name} close=${close} submit=${submit} done="The topic is deleted.">
    <p>Its messages, its groups and what they have done go with it. This cannot be undone.</p>
  <//>`;
}
