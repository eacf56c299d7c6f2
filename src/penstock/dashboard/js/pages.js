// Which page an address names.
import { html } from "./html.js";
import { Choose } from "./pages/choose.js";
import { DeadTopics } from "./pages/dead-topics.js";
import { Group } from "./pages/group.js";
import { Groups } from "./pages/groups.js";
import { Message } from "./pages/message.js";
import { Overview } from "./pages/overview.js";
import { Pipelines } from "./pages/pipelines.js";
import { Processes } from "./pages/processes.js";
import { Publish } from "./pages/publish.js";
import { Schedules } from "./pages/schedules.js";
import { TABS, Topic } from "./pages/topic.js";
import { Topics } from "./pages/topics.js";

export const NAVIGATION = [
  ["", "Overview"],
  ["topics", "Topics"],
  ["groups", "Groups"],
  ["messages", "Messages"],
  ["delayed", "Delayed"],
  ["schedules", "Schedules"],
  ["dead-letters", "Dead letters"],
  ["pipelines", "Pipelines"],
  ["processes", "Processes"],
  ["publish", "Publish"],
];

const SIMPLE = {
  topics: Topics,
  groups: Groups,
  schedules: Schedules,
  pipelines: Pipelines,
  processes: Processes,
  publish: Publish,
  "dead-letters": DeadTopics,
};

// The page, which entry of the navigation it belongs to, its title, and what makes it another page.
export function pageOf(parts, query) {
  const [first = "", second, ...rest] = parts;
  const title = NAVIGATION.find(([id]) => id === first)?.[1] ?? "";
  const made = (page, more = {}) => ({ page, section: first, title, key: first, ...more });
  if (parts.length === 0) return made(html`<${Overview} />`);
  if (first === "topics" && second !== undefined) return topicPage(second, rest, query);
  if (first === "groups" && second !== undefined) return made(html`<${Group} name=${second} />`, { title: second, key: `group ${second}` });
  if (parts.length === 1 && Object.hasOwn(SIMPLE, first)) return made(html`<${SIMPLE[first]} query=${query} />`);
  if (parts.length === 1 && (first === "messages" || first === "delayed")) return made(html`<${Choose} tab=${first} query=${query} />`);
  return made(null, { title: "Not found" });
}

function topicPage(name, [tab = "", partition, offset], query) {
  const section = ["messages", "delayed", "dead-letters", "publish"].includes(tab) ? tab : "topics";
  if (tab === "messages" && offset !== undefined) {
    const id = `${name}/${partition}/${offset}`;
    return { page: html`<${Message} topic=${name} partition=${partition} offset=${offset} />`, section, title: id, key: `message ${id}` };
  }
  if (!TABS.some(([id]) => id === tab)) return { page: null, section, title: "Not found", key: "none" };
  return { page: html`<${Topic} name=${name} tab=${tab} query=${query} />`, section, title: name, key: `topic ${name}` };
}
