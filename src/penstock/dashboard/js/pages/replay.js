// Replaying a window of the past into a group of its own.
import { post, url } from "../api.js";
import { FormDialog } from "../components/dialog.js";
import { Choice, Field, Segments } from "../components/fields.js";
import { isoFromInput, localInput, plural } from "../format.js";
import { html, useState } from "../html.js";
import { href } from "../router.js";
import { toast } from "../store.js";

export function Replay({ topic, close }) {
  const now = new Date();
  const [by, setBy] = useState("time");
  const [group, setGroup] = useState(`replay-${now.toISOString().slice(0, 16).replace(/[-:]/g, "").replace("T", "-")}`);
  const [from, setFrom] = useState(localInput(new Date(now.getTime() - 3600_000)));
  const [to, setTo] = useState(localInput(now));
  const [partition, setPartition] = useState("0");
  const [first, setFirst] = useState("0");
  const [last, setLast] = useState("");
  const [rate, setRate] = useState("");
  async function submit() {
    const window =
      by === "time"
        ? { from_time: isoFromInput(from), to_time: isoFromInput(to) }
        : { from_offset: Number(first), to_offset: last === "" ? null : Number(last), partition: Number(partition) };
    const body = { group, ...window, rate: rate === "" ? null : Number(rate) };
    const given = Object.fromEntries(Object.entries(body).filter(([, value]) => value !== null));
    const done = await post(url`/v1/topics/${topic.name}/replay`, given);
    toast(`${plural(done.messages, "message")} for the group`, "good", { href: href(["groups", done.group]), text: done.group });
  }
  const parts = topic.partition_list.map((part) => [String(part.partition), `partition ${part.partition}`]);
  return html`<${FormDialog} title=${`Replay ${topic.name}`} action="Replay" close=${close} submit=${submit}>
    <p class="muted">A new group gets these messages again. Nothing changes for the others.</p>
    <${Segments} label="Window by" value=${by} change=${setBy} options=${[["time", "By time"], ["offset", "By offset"]]} />
    ${by === "time"
      ? html`<div class="pair">
          <${Field} label="From" type="datetime-local" step="1" required value=${from} change=${setFrom} />
          <${Field} label="Until" type="datetime-local" step="1" value=${to} change=${setTo} />
        </div>`
      : html`<${Choice} label="Partition" value=${partition} change=${setPartition} options=${parts} />
          <div class="pair">
            <${Field} label="From offset" type="number" min="0" required value=${first} change=${setFirst} />
            <${Field} label="Before offset" type="number" min="0" value=${last} change=${setLast} hint="Empty: up to the end" />
          </div>`}
    <div class="pair">
      <${Field} label="New group" required value=${group} change=${setGroup} maxlength="200" />
      <${Field} label="Messages a second" type="number" min="0.001" step="any" value=${rate} change=${setRate} hint="Empty: as fast as it goes" />
    </div>
  <//>`;
}
