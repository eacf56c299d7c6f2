// Everything at a glance.
import { Chart } from "../components/chart.js";
import { Bytes, GroupLink, Lasting, Num, Tile, TopicLink } from "../components/figures.js";
import { Icon } from "../components/icons.js";
import { Answered, Empty, HowToPublish } from "../components/states.js";
import { Table } from "../components/table.js";
import { bytes, duration, milliseconds, number, plural, rate, shortMilliseconds } from "../format.js";
import { html } from "../html.js";
import { live } from "../live.js";
import { usePoll } from "../poll.js";
import { href } from "../router.js";
import { useStore } from "../store.js";

const RATES = [
  { label: "published", colour: "--series-1", value: (point) => point.published, fill: true },
  { label: "delivered", colour: "--series-2", value: (point) => point.delivered },
  { label: "acked", colour: "--series-3", value: (point) => point.acked },
  { label: "failed", colour: "--series-4", value: (point) => point.failed },
  { label: "dead", colour: "--series-5", value: (point) => point.dead },
];
const LATENCIES = [
  { label: "publish p50", colour: "--series-1", value: (point) => point.publish_p50_ms, fill: true },
  { label: "publish p99", short: "p99", colour: "--series-2", value: (point) => point.publish_p99_ms },
  { label: "end to end p50", colour: "--series-3", value: (point) => point.end_to_end_p50_ms },
  { label: "end to end p99", short: "p99", colour: "--series-4", value: (point) => point.end_to_end_p99_ms },
];

// Of the axis of latencies, in milliseconds: round numbers of microseconds, milliseconds, seconds, minutes, hours.
const STEPS = [0.001, 1, 1000].flatMap((unit) => [1, 2, 5, 10, 20, 50, 100, 200, 500].map((step) => step * unit)).filter((step) => step < 60_000);
STEPS.push(...[1, 2, 5, 10, 30, 60, 120, 360, 720, 1440].map((minutes) => minutes * 60_000));

export function Overview() {
  const poll = usePoll("/v1/overview", 5000);
  return html`<${Answered} poll=${poll}>${(data) => html`<${Found} ...${data} />`}<//>`;
}

function Found({ broker, latest, busiest, lagging }) {
  const { points } = useStore(live);
  const now = points.at(-1) ?? latest;
  return html`<header class="page-head">
      <h1>Overview</h1>
      <${Health} broker=${broker} />
    </header>
    ${broker.frozen
      ? html`<div class="banner bad" role="alert"><${Icon} name="warn" /><b>Nothing can be written any more.</b> ${broker.frozen} Reading goes on; look at the disk, then start the server again.</div>`
      : null}
    <${Tiles} now=${now} points=${points} broker=${broker} />
    <div class="two">
      <${Chart} title="Messages a second" series=${RATES} points=${points} format=${rate} />
      <${Chart} title="Latency" series=${LATENCIES} points=${points} format=${milliseconds} axisFormat=${shortMilliseconds} axisSteps=${STEPS} />
    </div>
    <div class="two">
      <${Busiest} topics=${busiest} />
      <${Lagging} groups=${lagging} />
    </div>
    <${Facts} broker=${broker} now=${now} />`;
}

function Health({ broker }) {
  return broker.frozen
    ? html`<span class="badge bad">frozen</span>`
    : html`<span class="badge good" title="It takes messages and delivers them">healthy</span>
        <span class="muted">up ${duration(broker.uptime_s)} · ${broker.version}</span>`;
}

// A latency of the last seconds: where nothing happened there is none.
function lately(points, name) {
  return points.slice(-15).findLast((point) => point[name] !== null)?.[name];
}

function Tiles({ now, points, broker }) {
  return html`<div class="tiles">
    <${Tile} label="Published" note=${now ? `${bytes(now.published_bytes)}/s` : ""}>${rate(now?.published)}<small>/s</small><//>
    <${Tile} label="Delivered" note=${now ? `${rate(now.acked)} acked/s` : ""}>${rate(now?.delivered)}<small>/s</small><//>
    <${Tile} label="Failed" tone=${now?.failed > 0 ? "warm" : ""} note=${now ? `${rate(now.dead)} dead/s` : ""}>${rate(now?.failed)}<small>/s</small><//>
    <${Tile} label="Publish p99" note=${`fsync ${milliseconds(lately(points, "fsync_p99_ms"))}`}>${milliseconds(lately(points, "publish_p99_ms"))}<//>
    <${Tile} label="In flight" note=${now ? plural(now.connections, "connection") : ""}><${Num} value=${now?.leased} /><//>
    <${Tile} label="Delayed" note="not due yet"><${Num} value=${now?.delayed} /><//>
    <${Tile} label="Topics" note=${`${number(broker.partitions)} ${broker.partitions === 1 ? "partition" : "partitions"}`}><${Num} value=${broker.topics} /><//>
    <${Tile} label="On disk" note=${`${number(broker.segments)} ${broker.segments === 1 ? "segment" : "segments"}`}><${Bytes} value=${broker.journal_bytes + broker.segment_bytes} /><//>
  </div>`;
}

function Busiest({ topics }) {
  const columns = [
    { title: "Topic", wide: true, cell: (topic) => html`<${TopicLink} name=${topic.name} />` },
    { title: "In/s", num: true, hint: "published a second", cell: (topic) => html`<span class="num">${rate(topic.published_per_second)}</span>` },
    { title: "Messages", num: true, cell: (topic) => html`<${Num} value=${topic.messages} />` },
    { title: "Size", num: true, cell: (topic) => html`<${Bytes} value=${topic.bytes} />` },
  ];
  return html`<section class="card">
    <header><h2>Busiest topics</h2><a href=${href(["topics"])}>All topics</a></header>
    ${topics.length
      ? html`<${Table} label="Busiest topics" columns=${columns} rows=${topics} id=${(topic) => topic.name} />`
      : html`<${Empty} icon="topics" title="No topics yet">A topic is made by its first message:<${HowToPublish} /><//>`}
  </section>`;
}

function Lagging({ groups }) {
  const columns = [
    { title: "Group", wide: true, cell: (group) => html`<${GroupLink} name=${group.group} />` },
    { title: "Topic", wide: true, cell: (group) => html`<${TopicLink} name=${group.topic} />` },
    { title: "Lag", num: true, hint: "messages that are not done", cell: (group) => html`<${Num} value=${group.lag} quiet />` },
    { title: "In flight", num: true, cell: (group) => html`<${Num} value=${group.leased} quiet />` },
    { title: "Oldest", num: true, hint: "the age of the oldest message that is not done", cell: (group) => html`<${Lasting} seconds=${group.oldest_unacked_s} />` },
  ];
  return html`<section class="card">
    <header><h2>Groups behind</h2><a href=${href(["groups"])}>All groups</a></header>
    ${groups.length
      ? html`<${Table} label="Groups behind" columns=${columns} rows=${groups} id=${(group) => `${group.topic}/${group.group}`} />`
      : html`<${Empty} icon="check" title="Nobody is behind">Groups that have messages to do stand here, the furthest behind first.<//>`}
  </section>`;
}

function Facts({ broker, now }) {
  const facts = [
    ["Version", broker.version],
    ["Acknowledged after", { always: "a sync of the disk", interval: "a write, synced now and then", never: "a write" }[broker.sync] ?? broker.sync],
    ["Journal", `${plural(broker.journal_files, "file")}, ${bytes(broker.journal_bytes)}`],
    ["Segments", `${number(broker.segments)}, ${bytes(broker.segment_bytes)}`],
    ["Waits for the disk", bytes(broker.unwritten_bytes)],
    ["Memory", now ? bytes(now.memory_bytes) : "–"],
    ["Event loop", now ? `${milliseconds(now.loop_delay_ms)} late` : "–"],
    ["Opened", `${plural(broker.epoch, "time")}, recovered in ${duration(broker.recovery.seconds)}`],
    ["Directory", broker.directory ?? "–"],
  ];
  return html`<section class="card">
    <header><h2>Broker</h2><span class="muted mono">${broker.broker_id}</span></header>
    <dl class="facts">${facts.map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd title=${value}>${value}</dd></div>`)}</dl>
  </section>`;
}
