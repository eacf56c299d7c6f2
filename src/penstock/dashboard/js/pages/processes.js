// The processes of the server: how each is, which shards it has, and how these moved.
import { Bytes, Lasting, Num } from "../components/figures.js";
import { Icon } from "../components/icons.js";
import { Answered, Command, Empty } from "../components/states.js";
import { exact, plural } from "../format.js";
import { html, useState } from "../html.js";
import { usePoll } from "../poll.js";
import { may } from "../store.js";
import { Balance, Drain, Move } from "./process-dialogs.js";
import { Moves, Shards, owned } from "./process-shards.js";
import { processorUse } from "./processor-use.js";

// In the order in which somebody wants to know of them: colour, and what the word means.
const STATES = {
  gone: ["bad", "It has ended, and is replaced soon"],
  starting: ["", "It is being started"],
  draining: ["warm", "It gets no shards until they are balanced"],
  up: ["good", "It is at work"],
};

export function Processes() {
  const poll = usePoll("/v1/cluster", 1000);
  const [asking, ask] = useState(null);
  const close = () => ask(null);
  const cluster = poll.data;
  const changing = cluster?.processes.length > 1 && may("admin") ? ask : null;
  return html`<header class="page-head">
      <h1>Processes</h1>
      ${cluster ? html`<${Counts} processes=${cluster.processes} />` : null}
      <span class="grow"></span>
      ${changing
        ? html`<button type="button" onClick=${() => ask({ what: "move" })}><${Icon} name="move" />Move a shard…</button>
            <button type="button" onClick=${() => ask({ what: "balance" })}><${Icon} name="balance" />Balance…</button>`
        : null}
    </header>
    <${Answered} poll=${poll}>${(data) => html`<${Found} cluster=${data} ask=${changing} />`}<//>
    ${asking?.what === "move" ? html`<${Move} cluster=${cluster} first=${asking.shard} close=${close} />` : null}
    ${asking?.what === "drain" ? html`<${Drain} cluster=${cluster} number=${asking.process} close=${close} />` : null}
    ${asking?.what === "balance" ? html`<${Balance} close=${close} />` : null}`;
}

function Counts({ processes }) {
  return Object.keys(STATES)
    .map((state) => [state, processes.filter((one) => one.state === state).length])
    .filter(([, count]) => count > 0)
    .map(([state, count]) => html`<${State} key=${state} state=${state} count=${count} />`);
}

function State({ state, count = null }) {
  const [tone, meaning] = STATES[state];
  return html`<span class="badge ${tone}" title=${meaning}>${count === null ? "" : `${exact(count)} `}${state}</span>`;
}

// `ask` opens a dialogue; null for those who cannot change anything.
function Found({ cluster, ask }) {
  const { processes, shards } = cluster;
  const alone = processes.length === 1;
  const use = processorUse(processes);
  return html`<div class="processes">
      ${processes.map((one) => html`<${Process} key=${one.number} one=${one} use=${use.get(one.number)} shards=${shards} ask=${ask} />`)}
    </div>
    ${alone
      ? html`<${Shards} cluster=${cluster} ask=${null} /><${Alone} />`
      : html`<div class="two wide-left"><${Shards} cluster=${cluster} ask=${ask} /><${Moves} moves=${cluster.moves} /></div>`}`;
}

function Alone() {
  return html`<section class="card"><${Empty} icon="processes" title="This server is one process">
    Where one processor is not enough, several processes share the shards of a directory, and shards move between them:
    <${Command} text="penstock serve ./data --shards 8 --processes 4" />
    A directory needs at least as many shards as there are processes; their number is chosen when it is made.
  <//></section>`;
}

function Process({ one, use, shards, ask }) {
  const its = shards.filter((shard) => shard.process === one.number);
  const upS = (Date.now() - new Date(one.since).getTime()) / 1000;
  const facts = [
    ["Processor", html`<${Use} use=${use} />`],
    ["Memory", html`<${Bytes} value=${one.resident_bytes} />`],
    ["Connections", html`<${Num} value=${one.connections} />`],
    ["Up for", html`<span title=${one.since}><${Lasting} seconds=${Math.max(0, Math.floor(upS))} /></span>`],
    ["Restarts", html`<span class=${one.restarts ? "warm" : ""}><${Num} value=${one.restarts} /></span>`],
    ["Process id", html`<span class="num">${one.pid}</span>`],
  ];
  return html`<section class="card process" aria-label=${`Process ${one.number}`} ...${owned(one.number)}>
    <header>
      <h2>Process ${one.number}</h2>
      <${State} state=${one.state} />
      <span class="grow"></span>
      ${ask && one.state === "up" ? html`<button type="button" class="small" onClick=${() => ask({ what: "drain", process: one.number })}>Drain…</button>` : null}
    </header>
    <dl class="facts">${facts.map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>
    <div class="chips">
      <span class="muted">${its.length ? plural(its.length, "shard") : "no shards"}</span>
      ${its.map((shard) => html`<span key=${shard.number} class="chip ${shard.state}" title=${`Shard ${shard.number} is ${shard.state}`}>${shard.number}</span>`)}
    </div>
  </section>`;
}

function Use({ use }) {
  if (use === null) return html`<span class="num">–</span>`;
  return html`<span class="use" title="Of one processor, in the last five seconds">
    <span class="num">${exact(Math.round(use * 100))} %</span>
    <span class="bar"><i style=${{ width: `${Math.min(100, use * 100)}%` }}></i></span>
  </span>`;
}
