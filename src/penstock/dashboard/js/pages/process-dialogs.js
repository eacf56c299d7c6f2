// Moving shards: one of them, all of a process, or as many as it takes for all to have their share.
import { post } from "../api.js";
import { FormDialog } from "../components/dialog.js";
import { Choice } from "../components/fields.js";
import { duration, plural } from "../format.js";
import { html, useState } from "../html.js";

export function Move({ cluster, first = 0, close }) {
  const { processes, shards } = cluster;
  const targetsOf = (origin) => processes.filter((one) => one.state === "up" && one.number !== origin).map((one) => one.number);
  const choose = (shard) => ({ shard, origin: shards[shard].process, target: targetsOf(shards[shard].process)[0] });
  const [{ shard, origin, target }, set] = useState(() => choose(first));
  const targets = targetsOf(origin);
  const now = shards[shard];
  return html`<${FormDialog}
    title="Move a shard"
    action="Move it"
    close=${close}
    submit=${() => post("/v1/cluster/move", { shard, process: target })}
    done=${(after) => moved(after, shard, target)}
    disabled=${!targets.includes(target)}
    progress=${now.state === "open" || now.state === "moving" ? `What is leased of shard ${shard} is being finished…` : `Shard ${shard} is on its way…`}
  >
    <p class="muted">Only the topics of this shard pause, for a moment. Clients follow it, and repeat what was under way.</p>
    <div class="pair">
      <${Choice} label="Shard" value=${String(shard)} change=${(chosen) => set(choose(Number(chosen)))} options=${shards.map((one) => [String(one.number), labelOf(one)])} />
      <${Choice}
        label="To"
        value=${String(target)}
        change=${(chosen) => set({ shard, origin, target: Number(chosen) })}
        options=${targets.map((number) => [String(number), `process ${number}`])}
        hint=${targets.length ? null : "No other process is up and may have shards"}
      />
    </div>
  <//>`;
}

const labelOf = (shard) => `${shard.number} (${shard.process < 0 ? "in no process" : `process ${shard.process}`})`;

function moved(after, shard, target) {
  const last = after.moves.findLast((move) => move.shard === shard && move.target === target);
  return `Shard ${shard} is in process ${target}${last ? `; it was away for ${duration(last.seconds)}` : ""}.`;
}

export function Drain({ cluster, number, close }) {
  const [count] = useState(() => left(cluster, number));
  return html`<${FormDialog}
    title=${`Drain process ${number}?`}
    action="Drain it"
    danger
    close=${close}
    submit=${() => post("/v1/cluster/drain", { process: number })}
    done=${`Process ${number} has no shards any more.`}
    progress=${`${count - left(cluster, number)} of ${plural(count, "shard")} moved…`}
  >
    <p>Its ${plural(count, "shard")} go to the other processes, one after the other. It gets none until you balance the shards again.</p>
  <//>`;
}

function left(cluster, number) {
  return cluster.shards.filter((shard) => shard.process === number).length;
}

export function Balance({ close }) {
  return html`<${FormDialog}
    title="Balance the shards"
    action="Balance them"
    close=${close}
    submit=${() => post("/v1/cluster/balance")}
    done="All processes share the shards."
    progress="Shards are moving, one after the other…"
  >
    <p class="muted">All processes get their share, also those that were drained, with as few moves as that takes.</p>
  <//>`;
}
