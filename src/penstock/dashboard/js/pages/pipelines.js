// Pipelines on Spark, as they tell of themselves: what runs, how fast, how far behind, and why something failed.
import { Chart } from "../components/chart.js";
import { Ago, Copy, Lasting, Num, TopicLink } from "../components/figures.js";
import { Icon } from "../components/icons.js";
import { Answered, Command, Empty } from "../components/states.js";
import { Search, Table } from "../components/table.js";
import { exact, number, plural, rate, time, visible } from "../format.js";
import { html, useState } from "../html.js";
import { usePoll } from "../poll.js";
import { setQuery } from "../router.js";
import { getRecent, recent } from "./pipeline-history.js";

const AT_FIRST = 20;
const LINES = 5;
const CHART = 130;

// In the order in which somebody wants to know of them: colour, and what the word means.
const STATES = {
  failed: ["bad", "It failed, and is not started again"],
  silent: ["bad", "It was at work, and has told nothing for a minute"],
  waiting: ["warm", "It failed, and is started again soon"],
  starting: ["", "It is being started"],
  running: ["good", "It is at work"],
  stopped: ["", "It was asked to stop"],
  finished: ["", "It did what there was to do"],
};
const ORDER = Object.keys(STATES);
const AT_WORK = ["waiting", "starting", "running"];

export function Pipelines({ query }) {
  const { search = "" } = query;
  const poll = usePoll("/v1/pipelines", 2000, getRecent);
  return html`<header class="page-head">
      <h1>Pipelines</h1>
      ${poll.data ? html`<${Counts} pipelines=${poll.data.pipelines} />` : null}
      <span class="grow"></span>
      <${Search} label="Find a pipeline" value=${search} change=${(text) => setQuery({ search: text })} />
    </header>
    <${Answered} poll=${poll}>${(data) => html`<${Found} pipelines=${data.pipelines} search=${search} />`}<//>`;
}

function Counts({ pipelines }) {
  return ORDER.map((state) => [state, pipelines.filter((one) => one.state === state).length])
    .filter(([, count]) => count > 0)
    .map(([state, count]) => html`<${State} key=${state} state=${state} count=${count} />`);
}

function State({ state, count = null }) {
  const [tone, meaning] = STATES[state];
  return html`<span class="badge ${tone}" title=${meaning}>${count === null ? "" : `${exact(count)} `}${state}</span>`;
}

function Found({ pipelines, search }) {
  const [all, setAll] = useState(false);
  const found = pipelines
    .filter((one) => one.name.toLowerCase().includes(search.toLowerCase()))
    .sort((one, other) => ORDER.indexOf(one.state) - ORDER.indexOf(other.state));
  const histories = recent(pipelines);
  if (!found.length) return html`<div class="card"><${None} search=${search} /></div>`;
  return html`${found.slice(0, all ? undefined : AT_FIRST).map((one) => html`<${Pipeline} key=${one.name} one=${one} points=${histories.get(one.name)} />`)}
    ${!all && found.length > AT_FIRST ? html`<div class="more"><button type="button" class="small" onClick=${() => setAll(true)}>Show all ${exact(found.length)}</button></div>` : null}`;
}

function None({ search }) {
  if (search) return html`<${Empty} icon="pipelines" title=${`No pipeline has “${search}” in its name`} />`;
  return html`<${Empty} icon="pipelines" title="No pipelines yet">
    A pipeline takes messages from topics, works on them with Spark, and writes topics and tables. While it runs, it stands here:
    <${Command} text="penstock pipeline run FILE" />
    What it told last stays for a day. Whether a file is right, without running it:
    <${Command} text="penstock pipeline check FILE" />
  <//>`;
}

function Pipeline({ one, points }) {
  return html`<section class="card pipeline" aria-label=${one.name}>
    <header>
      <h2><span class="name" title=${one.name}>${one.name}</span></h2>
      <${State} state=${one.state} />
      <${Facts} one=${one} />
      <span class="grow"></span>
      <span class="muted">reported <${Ago} value=${one.reported_at} /></span>
    </header>
    <${Failure} one=${one} />
    ${one.queries.length ? html`<${Queries} one=${one} />` : null}
    ${one.queries.length && AT_WORK.includes(one.state) ? html`<div class="two inside"><${Charts} one=${one} points=${points} /></div>` : null}
  </section>`;
}

function Facts({ one }) {
  const where = [one.file, one.host, one.pid ? `process ${one.pid}` : ""].filter(Boolean).join(" · ");
  return html`<span class="muted facts-line">
    ${one.started_at ? html`<span title=${one.started_at}>since ${time(one.started_at)}</span>` : null}
    ${one.restarts ? html`<span class="warm">${plural(one.restarts, "restart")}</span>` : null}
    ${where ? html`<bdi title=${where}>${visible(where)}</bdi>` : null}
  </span>`;
}

// Open while it matters: what failed once, and runs again, is only one line.
function Failure({ one }) {
  if (one.error === null) return null;
  return html`<details class="failure" open=${["failed", "waiting"].includes(one.state)}>
    <summary><${Icon} name="warn" />Why it failed last</summary>
    <div class="failure-text"><pre class="value" tabindex="0" dir="auto">${visible(one.error)}</pre><${Copy} text=${one.error} /></div>
  </details>`;
}

function Queries({ one }) {
  const columns = [
    { title: "Query", wide: true, cell: (query) => html`<span class="name" title=${query.name}>${shortName(one, query)}</span>` },
    { title: "Topics", wide: true, cell: (query) => html`<${Topics} query=${query} />` },
    { title: "Rows", num: true, hint: "since it was started", cell: (query) => html`<${Num} value=${query.rows} quiet />` },
    { title: "Rows/s", num: true, hint: "of the last batch", cell: (query) => html`<span class="num">${rate(query.rows_per_second)}</span>` },
    { title: "Lag", num: true, hint: "messages that are there and were not read yet", cell: (query) => html`<${Num} value=${query.lag} quiet />` },
    { title: "Batches", num: true, hint: "since it was started", cell: (query) => html`<${Num} value=${query.batches} quiet />` },
    { title: "Batch", num: true, hint: "how long the last one took", cell: (query) => html`<${Lasting} seconds=${query.batch_seconds} />` },
    { title: "State rows", num: true, hint: "rows that it keeps, for aggregates and joins", cell: (query) => html`<${Num} value=${query.state_rows} quiet />` },
    { title: "Last batch", num: true, cell: (query) => html`<${Ago} value=${query.last_batch_at} />` },
  ];
  return html`<${Table} label=${`Queries of ${one.name}`} columns=${columns} rows=${one.queries} id=${(query) => query.name} />`;
}

function shortName(one, query) {
  return query.name.startsWith(`${one.name}.`) ? query.name.slice(one.name.length + 1) : query.name;
}

function Topics({ query }) {
  const links = (names) => names.map((name) => html`<${TopicLink} key=${name} name=${name} />`);
  if (!query.reads.length && !query.writes.length) return html`<span class="muted">–</span>`;
  return html`<span class="way">${links(query.reads)}${query.writes.length ? html`<span class="muted" aria-label="to">→</span>${links(query.writes)}` : null}</span>`;
}

// A line for each query, or one for all where they would be too many to tell apart.
function linesOf(one, what) {
  const line = (label, place, value) => ({ label, short: cut(label), colour: `--series-${place}`, value, fill: place === 1 });
  if (one.queries.length > LINES) return [line("all queries", 1, (point) => sum(Object.values(point[what])))];
  return one.queries.map((query, place) => line(shortName(one, query), place + 1, (point) => point[what][query.name]));
}

const cut = (text) => (text.length > 24 ? `${text.slice(0, 23)}…` : text);

function sum(values) {
  const known = values.filter((value) => value !== null);
  return known.length ? known.reduce((total, value) => total + value, 0) : null;
}

function Charts({ one, points }) {
  const key = one.queries.map((query) => query.name).join(" ");
  return html`<div key=${`rate ${key}`}><${Chart} title="Rows a second" series=${linesOf(one, "rate")} points=${points} format=${rate} height=${CHART} inside /></div>
    <div key=${`lag ${key}`}><${Chart} title="Lag" series=${linesOf(one, "lag")} points=${points} format=${number} height=${CHART} inside /></div>`;
}
