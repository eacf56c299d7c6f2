// Messages and delayed messages belong to a topic: which one?
import { withQuery } from "../api.js";
import { Bytes, Num } from "../components/figures.js";
import { Answered, Empty, HowToPublish } from "../components/states.js";
import { Pager, Search, Table } from "../components/table.js";
import { html } from "../html.js";
import { usePoll } from "../poll.js";
import { setQuery, topicHref } from "../router.js";

const LIMIT = 50;
const TEXTS = {
  messages: ["Messages", "Choose a topic to look into."],
  delayed: ["Delayed", "Choose a topic to see what waits in it until it is due."],
};

export function Choose({ tab, query }) {
  const { search = "" } = query;
  const skip = Number(query.skip) || 0;
  const [title, text] = TEXTS[tab];
  const poll = usePoll(withQuery("/v1/topics", { search, skip, limit: LIMIT, sort: search ? "name" : "messages", order: search ? "asc" : "desc" }), 5000);
  const columns = [
    { title: "Topic", wide: true, cell: (topic) => html`<a class="name" href=${topicHref(topic.name, tab)} title=${topic.name}>${topic.name}</a>` },
    { title: "Messages", num: true, cell: (topic) => html`<${Num} value=${topic.messages} quiet />` },
    { title: "Size", num: true, cell: (topic) => html`<${Bytes} value=${topic.bytes} />` },
    { title: "Partitions", num: true, cell: (topic) => html`<${Num} value=${topic.partitions} />` },
  ];
  return html`<header class="page-head">
      <h1>${title}</h1>
      <span class="muted">${text}</span>
      <span class="grow"></span>
      <${Search} label="Find a topic" value=${search} change=${(next) => setQuery({ search: next, skip: "" })} />
    </header>
    <${Answered} poll=${poll}>
      ${(data) => html`<div class="card">
        ${data.total === 0
          ? html`<${Empty} icon=${tab} title=${search ? `No topic has “${search}” in its name` : "No topics yet"}>${search ? null : html`A topic is made by its first message:<${HowToPublish} />`}<//>`
          : html`<${Table} label="Topics" columns=${columns} rows=${data.topics} id=${(topic) => topic.name} stale=${poll.stale} />
              <${Pager} skip=${skip} limit=${LIMIT} total=${data.total} what="topics" change=${(next) => setQuery({ skip: next || "" })} />`}
      </div>`}
    <//>`;
}
