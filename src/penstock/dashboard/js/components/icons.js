// Small drawings of 16 × 16, in the colour of the text around them.
import { html } from "../html.js";

const PATHS = {
  overview: "M2 13V9M6 13V4M10 13V7M14 13V2",
  topics: "M2 4h12M2 8h12M2 12h8",
  groups: "M5.5 7.500a2.250 2.250 0 1 0 0-4.5 2.250 2.250 0 0 0 0 4.500ZM1.5 13c0-2.2 1.8-3.5 4-3.500s4 1.3 4 3.500M10.5 3.200a2.250 2.250 0 0 1 0 4.200M12 9.800c1.5.4 2.5 1.5 2.5 3.2",
  messages: "M2 3.500h12v8H8l-3.5 2.500v-2.500H2z",
  delayed: "M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12ZM8 4.800V8l2.2 1.5",
  schedules: "M2.5 3.500h11v10h-11zM2.5 6.500h11M5.5 2v3M10.5 2v3",
  "dead-letters": "M2 4h12v8.500H2zM2 4.500l6 4.5 6-4.500M11 1.500l3 0",
  pipelines: "M2 4.500h3.500c2.5 0 2.5 7 5 7h3M2 11.500h3c1 0 1.500-1 1.900-2.200M9 6.700c.4-1.200.9-2.200 2-2.200h2.500M11.5 2.500l2 2-2 2M11.5 9.500l2 2-2 2",
  publish: "M14 2 7 9M14 2l-4.5 12L7 9 2 6.500z",
  theme: "M13.5 9.500A5.8 5.8 0 0 1 6.5 2.500a5.8 5.8 0 1 0 7 7Z",
  sun: "M8 11a3 3 0 1 0 0-6 3 3 0 0 0 0 6ZM8 1v1.500M8 13.500V15M1 8h1.500M13.5 8H15M3 3l1.1 1.100M11.9 11.9 13 13M13 3l-1.1 1.100M4.1 11.9 3 13",
  system: "M2 3h12v8H2zM6 14h4M8 11v3",
  help: "M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12ZM6.3 6.300C6.4 5.3 7.1 4.8 8 4.800s1.7.6 1.7 1.500c0 1.2-1.7 1.3-1.7 2.600M8 11.200v.1",
  logout: "M6 2.500H2.500v11H6M10 5l3 3-3 3M13 8H6",
  search: "M7 12A5 5 0 1 0 7 2a5 5 0 0 0 0 10ZM10.6 10.6 14 14",
  copy: "M5.5 5.500h8v8h-8zM10.5 5.500v-3h-8v8h3",
  check: "M3 8.5 6.5 12 13 4.5",
  close: "M4 4l8 8M12 4l-8 8",
  menu: "M2 4h12M2 8h12M2 12h12",
  plus: "M8 3v10M3 8h10",
  replay: "M3 8a5 5 0 1 0 1.6-3.700M3 2.500v3h3",
  trash: "M2.5 4.500h11M6 4.500v-2h4v2M4 4.500l.7 9h6.600l.7-9",
  pause: "M5.5 3v10M10.5 3v10",
  play: "M4.5 2.800v10.400L13 8z",
  warn: "M8 2 1.5 13.500h13zM8 6.500v3.200M8 11.800v.1",
  left: "M10 3 5 8l5 5",
  right: "M6 3l5 5-5 5",
  edit: "M3 13l.6-2.900L10.8 3 13 5.200l-7.1 7.200zM9.5 4.300l2.2 2.2",
  drop: "M8 2c2.5 3 4 4.9 4 7a4 4 0 0 1-8 0c0-2.1 1.5-4 4-7Z",
};

export function Icon({ name }) {
  return html`<svg class="icon" viewBox="0 0 16 16" aria-hidden="true"><path d=${PATHS[name]} /></svg>`;
}
