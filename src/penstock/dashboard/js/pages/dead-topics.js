// Topics that have dead letters.
import { withQuery } from "../api.js";
import { Bytes, Num } from "../components/figures.js";
import { Answered, Empty } from "../components/states.js";
import { Pager, Search, Table } from "../components/table.js";
import { html } from "../html.js";
import { usePoll } from "../poll.js";
import { setQuery, topicHref } from "../router.js";

const LIMIT = 50;
const SUFFIX = ".dlq";

export function DeadTopics({ query }) {
  const { search = "" } = query;
  const skip = Number(query.skip) || 0;
  const pattern = `${search ? `*${search}` : ""}*${SUFFIX}`;
  const poll = usePoll(withQuery("/v1/topics", { search: pattern, skip, limit: LIMIT, sort: "messages", order: "desc" }), 5000);
  const columns = [
    { title: "Topic", wide: true, cell: ({ name }) => html`<a class="name" href=${topicHref(name.slice(0, -SUFFIX.length), "dead-letters")} title=${name}>${name.slice(0, -SUFFIX.length)}</a>` },
    { title: "Ever died", num: true, hint: "also those that were redriven or purged since, until retention removes them", cell: (topic) => html`<${Num} value=${topic.messages} />` },
    { title: "Size", num: true, cell: (topic) => html`<${Bytes} value=${topic.bytes} />` },
  ];
  return html`<header class="page-head">
      <h1>Dead letters</h1>
      <span class="muted">What groups gave up after its last try.</span>
      <span class="grow"></span>
      <${Search} label="Find a topic" value=${search} change=${(next) => setQuery({ search: next, skip: "" })} />
    </header>
    <${Answered} poll=${poll}>
      ${(data) => html`<div class="card">
        ${data.total === 0
          ? html`<${Empty} icon="check" title=${search ? `No topic with “${search}” in its name has dead letters` : "Nothing has died"}>
              A message that fails too often (three times, unless its topic says otherwise) comes here with its history, and you can send it back.
            <//>`
          : html`<${Table} label="Topics with dead letters" columns=${columns} rows=${data.topics} id=${(topic) => topic.name} stale=${poll.stale} />
              <${Pager} skip=${skip} limit=${LIMIT} total=${data.total} what="topics" change=${(next) => setQuery({ skip: next || "" })} />`}
      </div>`}
    <//>`;
}
