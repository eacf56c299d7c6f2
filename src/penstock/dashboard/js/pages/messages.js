// The messages of a topic: the newest, or from an offset or a time on, or of a key.
import { get, url, withQuery } from "../api.js";
import { Choice, Field, Segments } from "../components/fields.js";
import { Bytes, Lane, Time } from "../components/figures.js";
import { Icon } from "../components/icons.js";
import { Preview } from "../components/content.js";
import { Answered, Empty, HowToPublish } from "../components/states.js";
import { Table } from "../components/table.js";
import { isoFromInput, localInput } from "../format.js";
import { html, useEffect, useState } from "../html.js";
import { usePoll } from "../poll.js";
import { messageHref, setQuery } from "../router.js";

const LIMIT = 50;
const LOOKED_AT = 16;

const COLUMNS = [
  { title: "Place", cell: (message) => html`<a class="name mono" href=${messageHref(message.id)} title=${message.id}>${message.partition}/${message.offset}</a>` },
  { title: "Published", cell: (message) => html`<${Time} value=${message.timestamp} fraction />` },
  { title: "Key", kind: "key-cell", cell: (message) => html`<${Preview} text=${message.key} encoding=${message.encoding} />` },
  { title: "Value", wide: true, kind: "widest", cell: (message) => html`<${Preview} text=${message.value} encoding=${message.encoding} />` },
  { title: "Lane", cell: (message) => html`<${Lane} priority=${message.priority} />` },
  { title: "Size", num: true, cell: (message) => html`<${Bytes} value=${message.size} />` },
];

export function Messages({ topic, query }) {
  const { by = "newest", partition = "" } = query;
  return html`<${Filters} topic=${topic} by=${by} partition=${partition} query=${query} />
    ${by === "newest"
      ? html`<${Newest} topic=${topic} partition=${partition} />`
      : html`<${Found} key=${JSON.stringify(query)} topic=${topic} by=${by} query=${query} />`}`;
}

function Filters({ topic, by, partition, query }) {
  const [offset, setOffset] = useState(query.offset ?? "0");
  const [from, setFrom] = useState(query.from ?? localInput(new Date(Date.now() - 3600_000)));
  const [to, setTo] = useState(query.to ?? "");
  const [key, setKey] = useState(query.key ?? "");
  const given = { newest: {}, offset: { offset }, time: { from, to }, key: { key } };
  const nothing = { offset: "", from: "", to: "", key: "" };
  const choose = (next) => setQuery({ ...nothing, by: next === "newest" ? "" : next, ...given[next] });
  function submitted(event) {
    event.preventDefault();
    choose(by);
  }
  const parts = topic.partition_list.slice(0, 1024).map((part) => [String(part.partition), `partition ${part.partition}`]);
  return html`<form class="filters" onSubmit=${submitted}>
    <${Segments} label="Look by" value=${by} change=${choose} options=${[["newest", "Newest"], ["offset", "From offset"], ["time", "By time"], ["key", "By key"]]} />
    ${by === "offset" ? html`<${Field} label="Offset" type="number" min="0" required value=${offset} change=${setOffset} />` : null}
    ${by === "time"
      ? html`<${Field} label="From" type="datetime-local" step="1" required value=${from} change=${setFrom} />
          <${Field} label="Until" type="datetime-local" step="1" value=${to} change=${setTo} />`
      : null}
    ${by === "key" ? html`<${Field} label="Key" required data-search value=${key} change=${setKey} />` : null}
    ${topic.partitions > 1 ? html`<${Choice} label="Partition" value=${partition} change=${(next) => setQuery({ partition: next })} options=${[["", "all partitions"], ...parts]} />` : null}
    ${by === "newest" ? null : html`<button type="submit"><${Icon} name="search" />Look</button>`}
  </form>`;
}

// The ends of the partitions, read together and put in order of time.
async function readNewest(path, signal) {
  const { name, ends } = JSON.parse(path);
  const each = Math.max(1, Math.ceil(LIMIT / ends.length));
  const pages = await Promise.all(
    ends.map(([partition, first, end]) =>
      first === end ? { messages: [] } : get(withQuery(url`/v1/topics/${name}/partitions/${partition}/messages`, { offset: Math.max(first, end - each), limit: each }), signal),
    ),
  );
  const messages = pages.flatMap((page) => page.messages);
  return messages.sort((one, other) => (one.timestamp < other.timestamp ? 1 : one.timestamp > other.timestamp ? -1 : other.offset - one.offset)).slice(0, LIMIT);
}

function Newest({ topic, partition }) {
  const list = topic.partition_list.filter((part) => partition === "" || String(part.partition) === partition);
  const fullest = list.length > LOOKED_AT ? [...list].sort((one, other) => other.messages - one.messages).slice(0, LOOKED_AT) : list;
  const ends = fullest.map((part) => [part.partition, part.first_offset, part.end_offset]);
  const poll = usePoll(JSON.stringify({ name: topic.name, ends }), 1 << 30, readNewest);
  return html`<${Answered} poll=${poll}>
    ${(messages) => html`<div class="card">
      ${messages.length
        ? html`<${Table} label="Newest messages" columns=${COLUMNS} rows=${messages} id=${(message) => message.id} />
            <div class="pager"><span class="muted">The newest ${messages.length}${list.length > LOOKED_AT ? ` of the ${LOOKED_AT} fullest partitions` : ""}; new ones appear by themselves.</span></div>`
        : html`<${Empty} icon="messages" title="No messages yet"><${HowToPublish} topic=${topic.name} /><//>`}
    </div>`}
  <//>`;
}

const PARAMETERS = {
  offset: ({ offset }) => ({ offset }),
  time: ({ from, to }) => ({ from_time: isoFromInput(from), to_time: isoFromInput(to) }),
  key: ({ key }) => ({ key }),
};

// A search, page by page, as far as somebody looks.
function Found({ topic, by, query }) {
  const [state, set] = useState({ messages: [], cursor: null, data: null, error: null, busy: true });
  async function more(cursor) {
    set((old) => ({ ...old, busy: true }));
    try {
      const asked = { ...PARAMETERS[by](query), partition: query.partition, limit: LIMIT, cursor };
      const page = await get(withQuery(url`/v1/topics/${topic.name}/messages`, asked));
      set((old) => ({ messages: [...old.messages, ...page.messages], cursor: page.cursor, data: page, error: null, busy: false }));
    } catch (error) {
      set((old) => ({ ...old, error, busy: false }));
    }
  }
  const ready = by !== "key" || query.key;
  useEffect(() => {
    if (ready) more(null);
  }, []);
  if (!ready) return html`<div class="card"><${Empty} icon="search" title="Which key?">All messages with one key, in all partitions or one.<//></div>`;
  return html`<${Answered} poll=${state}>
    ${() => html`<div class="card">
      ${state.messages.length
        ? html`<${Table} label="Messages" columns=${COLUMNS} rows=${state.messages} id=${(message) => message.id} />`
        : html`<${Empty} icon="messages" title="No messages found">${state.cursor ? "Not in this part of the log; there is more of it." : "Nothing in this topic fits."}<//>`}
      ${state.cursor ? html`<div class="more"><button type="button" class="small" data-page="next" disabled=${state.busy} onClick=${() => more(state.cursor)}>More</button></div>` : null}
    </div>`}
  <//>`;
}
