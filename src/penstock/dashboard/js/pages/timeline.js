// The life of a message, drawn: a lane for each group, then every step with the time between.
import { GroupLink, Time } from "../components/figures.js";
import { duration, plural, time, visible } from "../format.js";
import { html } from "../html.js";

const TONES = {
  published: "start", scheduled: "wait", rescheduled: "wait", due: "wait", delivered: "busy", extended: "busy",
  acked: "good", failed: "warm", expired: "warm", released: "wait", dead: "bad", redriven: "start", copied: "start",
  cancelled: "gone", purged: "gone", lapsed: "gone", skipped: "gone", removed: "gone", archived: "gone", configured: "wait",
};
const ENDS = new Set(["acked", "failed", "expired", "released", "dead", "lapsed", "cancelled", "purged"]);
const DUE = { failed: "again at", scheduled: "due at", rescheduled: "due at" };
const EXPLAINED = {
  published: "on disk", scheduled: "waits until it is due", rescheduled: "falls due at another time", due: "may be delivered now",
  delivered: "leased to a consumer", extended: "its lease lasts longer", acked: "done", failed: "the consumer could not process it",
  expired: "its lease ran out", released: "given back; counts as no failure", dead: "went to the dead letters",
  redriven: "came back from the dead letters", copied: "its dead letter was published again", cancelled: "taken back before it was delivered", purged: "thrown away unread",
  lapsed: "its time to live ended", skipped: "left out of a replay", removed: "removed by retention", archived: "moved to the archive", configured: "its group has other settings",
};

export function Timeline({ lines }) {
  const steps = lines.map((line, number) => ({ ...line, number, ms: preciseMs(line.time) })).sort((one, other) => one.ms - other.ms || one.number - other.number);
  if (!steps.length) return null;
  const total = (steps.at(-1).ms - steps[0].ms) / 1000;
  return html`<section class="card timeline" aria-label="Trace">
    <header><h2>Trace</h2><span class="muted">${plural(steps.length, "step")} in ${duration(total)}; long gaps are drawn shorter</span></header>
    <${Lanes} steps=${steps} />
    <${Steps} steps=${steps} />
  </section>`;
}

// Dates hold milliseconds; the trace knows microseconds.
function preciseMs(text) {
  const fraction = /\.\d{3}(\d{1,3})/.exec(text);
  return new Date(text).getTime() + (fraction ? Number(fraction[1].padEnd(3, "0")) / 1000 : 0);
}

// Where each step stands, 0 to 100: a gap is drawn as wide as its logarithm, so that every step can be seen.
function placesOf(steps) {
  const widths = steps.map((step, number) => (number === 0 ? 0 : Math.log10(1 + (step.ms - steps[number - 1].ms) * 10) + 0.25));
  const whole = widths.reduce((sum, width) => sum + width, 0) || 1;
  let at = 0;
  return widths.map((width) => (at += (width / whole) * 100));
}

function Lanes({ steps }) {
  const places = placesOf(steps);
  const names = [null, ...new Set(steps.map((step) => step.group).filter(Boolean))];
  return html`<div class="swim" aria-hidden="true">
    <div class="swim-row gaps">
      <span class="swim-name"></span>
      <div class="swim-lane">
        ${steps.slice(1).map((step, number) => {
          const width = places[number + 1] - places[number];
          const gap = duration((step.ms - steps[number].ms) / 1000);
          return width < 7 ? null : html`<span key=${number} class="gap" style=${{ left: `${places[number]}%`, width: `${width}%` }}>${gap}</span>`;
        })}
      </div>
    </div>
    ${names.map((name) => html`<div key=${name ?? ""} class="swim-row">
      <span class="swim-name" title=${name ?? "the message"}>${name ?? "message"}</span>
      <div class="swim-lane">
        <${Bars} steps=${steps} places=${places} name=${name} />
        ${steps.map((step, number) => (step.group ?? null) !== name ? null : html`<i
          key=${number}
          class="dot tone-${TONES[step.kind] ?? "gone"}"
          style=${{ left: `${places[number]}%` }}
          title=${`${step.kind} ${time(step.time, true)}`}
        ></i>`)}
      </div>
    </div>`)}
  </div>`;
}

// A bar for each lease of a group, and for each wait of the message until it is due.
function Bars({ steps, places, name }) {
  const bars = [];
  let open = null;
  steps.forEach((step, number) => {
    if ((step.group ?? null) !== name) return;
    const begins = step.kind === "delivered" || (name === null && (step.kind === "scheduled" || step.kind === "rescheduled"));
    if (open && (begins || ENDS.has(step.kind) || step.kind === "due")) {
      bars.push([open.at, places[number], open.tone === "wait" ? "wait" : (TONES[step.kind] ?? "busy")]);
      open = null;
    }
    if (begins) open = { at: places[number], tone: TONES[step.kind] };
  });
  if (open) bars.push([open.at, 100, `${open.tone} open`]);
  return bars.map(([from, to, tone], number) => html`<i key=${number} class="lease tone-${tone}" style=${{ left: `${from}%`, width: `${Math.max(to - from, 0.4)}%` }}></i>`);
}

function Steps({ steps }) {
  return html`<ol class="steps">
    ${steps.map((step, number) => {
      const gap = number === 0 ? null : (step.ms - steps[number - 1].ms) / 1000;
      const room = gap === null ? 0 : Math.min(34, Math.max(0, Math.log10(1 + gap * 100) * 9));
      return html`<li key=${number} style=${{ paddingTop: `${room}px` }}>
        <span class="step-gap num">${gap ? `+${duration(gap)}` : ""}</span>
        <span class="step-mark tone-${TONES[step.kind] ?? "gone"}"></span>
        <span class="step-time"><${Time} value=${step.time} fraction /></span>
        <span class="step-text">
          <b class="tone-${TONES[step.kind] ?? "gone"}">${step.kind}</b>
          <span class="muted">${EXPLAINED[step.kind] ?? ""}</span>
          ${step.attempt ? html`<span class="badge">attempt ${step.attempt}</span>` : null}
          ${step.group ? html`<span class="step-who"><${GroupLink} name=${step.group} />${step.consumer ? html`<span class="muted mono" title=${step.consumer}> ${step.consumer}</span>` : null}</span>` : null}
          ${step.producer ? html`<span class="step-who muted">by <bdi class="mono">${visible(step.producer)}</bdi></span>` : null}
          ${step.due_at ? html`<span class="muted">${DUE[step.kind] ?? "until"} <${Time} value=${step.due_at} /></span>` : null}
          ${step.cause ? html`<bdi class="cause">${visible(step.cause.slice(0, 2000))}</bdi>` : null}
        </span>
      </li>`;
    })}
  </ol>`;
}
