// Where every shard is, and how shards moved.
import { Ago, Lasting } from "../components/figures.js";
import { Empty, Problem } from "../components/states.js";
import { Table } from "../components/table.js";
import { exact } from "../format.js";
import { html, useState } from "../html.js";

const AT_FIRST = 10;
const MEANINGS = {
  open: "It is at work",
  opening: "It is being opened",
  moving: "It is about to leave: what is leased is being finished",
  closed: "No process has it",
};

// The attributes of what has the colour of a process; -1 is that of none.
export function owned(process) {
  return process < 0 ? { "data-owned": "nobody" } : { "data-owned": "", style: { "--process": process } };
}

// `ask` opens the dialogue that moves a shard; null where nobody may.
export function Shards({ cluster, ask }) {
  const { processes, shards } = cluster;
  return html`<section class="card" aria-label="Shards">
    <header><h2>Shards</h2>${processes.length > 1 ? html`<span class="muted">in the colours of their processes</span>` : null}</header>
    <ul class="shards">
      ${shards.map((shard) => html`<li key=${shard.number}><${Shard} shard=${shard} ask=${ask} /></li>`)}
    </ul>
    ${shards
      .filter((shard) => shard.problem)
      .map((shard) => html`<div key=${shard.number} class="shard-problem"><${Problem} error=${{ message: `Shard ${shard.number} could not be opened: ${shard.problem}` }} /></div>`)}
  </section>`;
}

function Shard({ shard, ask }) {
  const where = shard.process < 0 ? "in no process" : `process ${shard.process}`;
  const content = html`<b class="num">${shard.number}</b>
    <span class="shard-text">${shard.state === "open" ? where : `${shard.state}…`}<small>epoch ${exact(shard.epoch)}</small></span>`;
  const common = { class: `shard ${shard.state}`, title: MEANINGS[shard.state], ...owned(shard.process) };
  if (!ask) return html`<div ...${common}>${content}</div>`;
  return html`<button type="button" ...${common} aria-label=${`Move shard ${shard.number}, ${where}, ${shard.state}, epoch ${shard.epoch}`} onClick=${() => ask({ what: "move", shard: shard.number })}>${content}</button>`;
}

export function Moves({ moves }) {
  const [all, setAll] = useState(false);
  const newest = moves.toReversed();
  const columns = [
    { title: "Shard", cell: (move) => html`<span class="num">${move.shard}</span>` },
    { title: "From", cell: (move) => html`<${ProcessNumber} of=${move.origin} />` },
    { title: "To", cell: (move) => html`<${ProcessNumber} of=${move.target} />` },
    { title: "When", num: true, cell: (move) => html`<${Ago} value=${move.at} />` },
    { title: "Away for", num: true, hint: "how long it was in no process", cell: (move) => html`<${Lasting} seconds=${move.seconds} />` },
  ];
  return html`<section class="card">
    <header><h2>Last moves</h2></header>
    ${moves.length
      ? html`<${Table} label="Last moves" columns=${columns} rows=${all ? newest : newest.slice(0, AT_FIRST)} id=${(move) => `${move.shard} ${move.at}`} />`
      : html`<${Empty} icon="move" title="No shard has moved">Only the topics of a shard that moves pause, for a moment; clients follow it.<//>`}
    ${!all && moves.length > AT_FIRST ? html`<div class="more"><button type="button" class="small" onClick=${() => setAll(true)}>Show all ${exact(moves.length)}</button></div>` : null}
  </section>`;
}

function ProcessNumber({ of }) {
  return html`<span class="process-number" ...${owned(of)}><i class="swatch"></i><span class="num">${of}</span></span>`;
}
