// All groups of all topics.
import { withQuery } from "../api.js";
import { GroupBadges, GroupLink, Lasting, Num, TopicLink } from "../components/figures.js";
import { Answered, Command, Empty } from "../components/states.js";
import { Pager, Search, Table } from "../components/table.js";
import { html } from "../html.js";
import { usePoll } from "../poll.js";
import { setQuery } from "../router.js";
import { Fate } from "./fate.js";

const LIMIT = 50;

const COLUMNS = [
  { title: "Group", wide: true, cell: (group) => html`<${GroupLink} name=${group.group} /><${GroupBadges} group=${group} />` },
  { title: "Topic", wide: true, cell: (group) => html`<${TopicLink} name=${group.topic} />` },
  { title: "Progress", kind: "fate-cell", cell: (group) => html`<${Fate} group=${group} />` },
  { title: "Lag", num: true, hint: "messages that are not done", cell: (group) => html`<${Num} value=${group.lag} quiet />` },
  { title: "Ready", num: true, cell: (group) => html`<${Num} value=${group.ready} quiet />` },
  { title: "In flight", num: true, cell: (group) => html`<${Num} value=${group.leased} quiet />` },
  { title: "Retrying", num: true, cell: (group) => html`<${Num} value=${group.retrying} quiet />` },
  { title: "Dead", num: true, cell: (group) => html`<${Num} value=${group.dead} quiet />` },
  { title: "Oldest", num: true, hint: "the age of the oldest message that is not done", cell: (group) => html`<${Lasting} seconds=${group.oldest_unacked_s} />` },
  { title: "Members", num: true, cell: (group) => html`<${Num} value=${group.members.length} quiet />` },
];

export function Groups({ query }) {
  const { search = "" } = query;
  const skip = Number(query.skip) || 0;
  const poll = usePoll(withQuery("/v1/groups", { search, skip, limit: LIMIT }), 3000);
  return html`<header class="page-head">
      <h1>Groups</h1>
      <span class="grow"></span>
      <${Search} label="Find a group" value=${search} change=${(text) => setQuery({ search: text, skip: "" })} />
    </header>
    <${Answered} poll=${poll}>
      ${(data) => html`<div class="card">
        ${data.total === 0
          ? html`<${Empty} icon="groups" title=${search ? `No group has “${search}” in its name` : "No groups yet"}>
              ${search ? null : html`Consumers work in groups; each group gets every message once. A group is made by its first consumer:<${Command} text="penstock consume orders --group kitchen" />`}
            <//>`
          : html`<${Table} label="Groups" columns=${COLUMNS} rows=${data.groups} id=${(group) => `${group.topic} ${group.group}`} stale=${poll.stale} />
              <${Pager} skip=${skip} limit=${LIMIT} total=${data.total} what="groups" change=${(next) => setQuery({ skip: next || "" })} />`}
      </div>`}
    <//>`;
}
