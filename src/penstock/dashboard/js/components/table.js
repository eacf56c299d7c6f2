// Tables, with columns that sort and pages that the server turns.
import { exact } from "../format.js";
import { html, useEffect, useRef, useState } from "../html.js";
import { Icon } from "./icons.js";

// A column: { title, cell(row), num, sort (its name for the server), wide, hint }.
export function Table({ label, columns, rows, id, sort = null, stale = false, rowClass = null }) {
  return html`<div class="table-box ${stale ? "stale" : ""}">
    <table aria-label=${label}>
      <thead>
        <tr>
          ${columns.map((column, number) => html`<${Heading} key=${number} column=${column} sort=${sort} />`)}
        </tr>
      </thead>
      <tbody>
        ${rows.map((row) => html`<tr key=${id(row)} class=${rowClass?.(row) ?? ""}>
          ${columns.map((column, number) => html`<td key=${number} class=${classOf(column)}>${column.cell(row)}</td>`)}
        </tr>`)}
      </tbody>
    </table>
  </div>`;
}

const classOf = (column) => `${column.num ? "right" : ""} ${column.wide ? "wide" : ""} ${column.kind ?? ""}`.trim();

function Heading({ column, sort }) {
  if (!sort || !column.sort) return html`<th scope="col" class=${classOf(column)} title=${column.hint}>${column.title}</th>`;
  const sorted = sort.by === column.sort;
  const order = sorted ? (sort.order === "desc" ? "descending" : "ascending") : "none";
  const next = sorted ? (sort.order === "desc" ? "asc" : "desc") : column.num ? "desc" : "asc";
  return html`<th scope="col" class=${classOf(column)} aria-sort=${order} title=${column.hint}>
    <button type="button" class="sorter" onClick=${() => sort.change(column.sort, next)}>
      ${column.title}<span class="arrow" aria-hidden="true">${sorted ? (sort.order === "desc" ? "↓" : "↑") : ""}</span>
    </button>
  </th>`;
}

export function Pager({ skip, limit, total, change, what }) {
  if (total <= limit && skip === 0) return html`<div class="pager"><span class="muted">${exact(total)} ${what}</span></div>`;
  const last = Math.min(skip + limit, total);
  return html`<nav class="pager" aria-label="Pages">
    <span class="muted">${exact(Math.min(skip + 1, total))}–${exact(last)} of ${exact(total)} ${what}</span>
    <button type="button" class="small" data-page="back" disabled=${skip === 0} onClick=${() => change(Math.max(0, skip - limit))}>
      <${Icon} name="left" />Back
    </button>
    <button type="button" class="small" data-page="next" disabled=${last >= total} onClick=${() => change(skip + limit)}>
      Next<${Icon} name="right" />
    </button>
  </nav>`;
}

// A search box that waits until typing pauses. What comes back of its own words changes nothing: more may be typed by then.
export function Search({ label, value, change }) {
  const [text, setText] = useState(value);
  const told = useRef(value);
  useEffect(() => {
    if (value !== told.current) setText((told.current = value));
  }, [value]);
  useEffect(() => {
    if (text === told.current) return undefined;
    const timer = setTimeout(() => change((told.current = text)), 180);
    return () => clearTimeout(timer);
  }, [text]);
  return html`<label class="search">
    <${Icon} name="search" />
    <input
      type="search"
      data-search
      aria-label=${label}
      placeholder=${label}
      value=${text}
      spellcheck="false"
      onInput=${(event) => setText(event.target.value)}
    />
    <kbd aria-hidden="true">/</kbd>
  </label>`;
}
