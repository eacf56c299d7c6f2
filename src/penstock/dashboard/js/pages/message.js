// One message: what it says, and what happened to it.
import { url } from "../api.js";
import { Content } from "../components/content.js";
import { Bytes, Copy, Lane, Time } from "../components/figures.js";
import { Icon } from "../components/icons.js";
import { Answered, Empty } from "../components/states.js";
import { visible } from "../format.js";
import { html, useEffect, useState } from "../html.js";
import { usePoll } from "../poll.js";
import { href, topicHref } from "../router.js";
import { Timeline } from "./timeline.js";

const LARGE = 100_000; // bytes, which come with every answer

export function Message({ topic, partition, offset }) {
  const [everyMs, setEveryMs] = useState(3000);
  const poll = usePoll(url`/v1/traces/${topic}/${partition}/${offset}`, everyMs);
  useEffect(() => setEveryMs(poll.data?.message?.size > LARGE ? 60_000 : 3000), [poll.data === null]);
  const at = Number(offset);
  return html`<header class="page-head">
      <h1 class="long" title=${`${topic}/${partition}/${offset}`}>
        <a class="crumb" href=${topicHref(topic, "messages")}>${topic}</a><span class="slash">/</span>${partition}<span class="slash">/</span>${offset}
      </h1>
      <${Copy} text=${`${topic}/${partition}/${offset}`} label="Copy id" />
      <span class="grow"></span>
      <a class="button" data-page="back" aria-disabled=${at <= 0} href=${topicHref(topic, "messages", partition, String(Math.max(0, at - 1)))}><${Icon} name="left" />Before</a>
      <a class="button" data-page="next" href=${topicHref(topic, "messages", partition, String(at + 1))}>After<${Icon} name="right" /></a>
    </header>
    <${Answered} poll=${poll}>
      ${(trace) => html`<div class="two wide-left top">
          <section class="card">
            <header><h2>Value</h2></header>
            ${trace.message
              ? html`<${Content} value=${trace.message.value} encoding=${trace.message.encoding} size=${trace.message.size} />`
              : html`<${Empty} icon="messages" title="Its content is gone">Retention removed it; what happened to it is still known.<//>`}
          </section>
          <${About} trace=${trace} />
        </div>
        <${Timeline} lines=${trace.lines} />`}
    <//>`;
}

function About({ trace }) {
  const message = trace.message;
  const facts = message
    ? [
        ["Published", html`<${Time} value=${message.timestamp} fraction />`],
        ["Key", message.key === null ? "none" : html`<bdi class="mono wrap">${visible(message.key.slice(0, 2000))}</bdi>`],
        ["Lane", html`<${Lane} priority=${message.priority} />`],
        ["Size", html`<${Bytes} value=${message.size} />`],
        message.deliver_at ? ["Delayed until", html`<${Time} value=${message.deliver_at} />`] : null,
        message.expires_at ? ["Expires", html`<${Time} value=${message.expires_at} />`] : null,
        message.dedupe_id ? ["Dedupe id", html`<bdi class="mono wrap">${visible(message.dedupe_id)}</bdi>`] : null,
        trace.retained_until ? ["Kept until", html`<${Time} value=${trace.retained_until} />`] : null,
        trace.traceparent ? ["Trace context", html`<bdi class="mono wrap">${visible(trace.traceparent)}</bdi>`] : null,
      ].filter(Boolean)
    : [];
  const headers = Object.entries(message?.headers ?? {});
  return html`<section class="card">
    <header><h2>About it</h2>${message ? html`<a href=${href(["publish"], { topic: message.topic, like: trace.id })}>Publish one like it</a>` : null}</header>
    <dl class="facts column">${facts.map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>
    ${headers.length
      ? html`<h3 class="inner">Headers</h3>
          <dl class="facts column">${headers.map(([name, value]) => html`<div key=${name}><dt><bdi class="mono">${visible(name)}</bdi></dt><dd><bdi class="mono wrap">${visible(value.slice(0, 4000))}</bdi></dd></div>`)}</dl>`
      : null}
  </section>`;
}
