// A chart over time that grows with every second.
import { html, useEffect, useRef, useState } from "../html.js";
import { theme, useStore } from "../store.js";

const HEIGHT = 210;
const GUTTER = 16;
const LEAST_S = 60;

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function useSystemTheme() {
  const [dark, set] = useState(matchMedia("(prefers-color-scheme: dark)").matches);
  useEffect(() => {
    const query = matchMedia("(prefers-color-scheme: dark)");
    const changed = () => set(query.matches);
    query.addEventListener("change", changed);
    return () => query.removeEventListener("change", changed);
  }, []);
  return dark;
}

// A series: { label, short (beside the one before it), colour (a property of the style sheet), value(point), fill }.
export function Chart({ title, series, points, format, axisFormat = format, axisSteps = undefined, spanS = 300, height = HEIGHT, inside = false }) {
  const box = useRef(null);
  const plot = useRef(null);
  const [hidden, setHidden] = useState(() => new Set());
  const chosen = useStore(theme);
  const dark = useSystemTheme();
  const data = toData(series, points, spanS);
  const shown = useRef(data);
  shown.current = data;

  useEffect(() => {
    const options = {
      width: box.current.clientWidth - GUTTER,
      height,
      padding: [10, 8, 0, 0],
      legend: { show: false },
      cursor: { y: false, points: { size: 6 }, drag: { x: false, y: false } },
      scales: {
        x: { time: true, range: (_plot, low, high) => [Math.max(high - spanS, Math.min(low, high - LEAST_S)), high] },
        y: { range: (_plot, _low, high) => [0, high > 0 ? high * 1.1 : 1] },
      },
      axes: [axis({ space: 70, size: 28, values: (_plot, ticks) => ticks.map(clock) }), axis({ size: 56, incrs: axisSteps, values: (_plot, ticks) => ticks.map(axisFormat) })],
      series: [{}, ...series.map((one) => drawn(one, !hidden.has(one.label)))],
      hooks: { setCursor: [(here) => pointAt(here, box.current, series, format)] },
    };
    const element = box.current;
    const made = (plot.current = new window.uPlot(options, shown.current, element));
    const observer = new ResizeObserver(() => made.setSize({ width: element.clientWidth - GUTTER, height }));
    observer.observe(element);
    return () => {
      observer.disconnect();
      made.destroy();
      plot.current = null;
    };
  }, [chosen, dark, hidden]);

  useEffect(() => plot.current?.setData(data), [points]);

  function toggle(label) {
    const next = new Set(hidden);
    if (!next.delete(label)) next.add(label);
    setHidden(next);
  }

  return html`<section class=${inside ? "chart inside" : "card chart"} aria-label=${title}>
    <header>
      <h2>${title}</h2>
      <div class="legend">
        ${series.map((one) => html`<button
          key=${one.label}
          type="button"
          class="quiet key ${one.colour.slice(2)}"
          aria-label=${one.label}
          aria-pressed=${!hidden.has(one.label)}
          onClick=${() => toggle(one.label)}
        >
          <i></i>${one.short ?? one.label}
        </button>`)}
      </div>
    </header>
    <div class="plot" ref=${box} style=${{ height: `${height + 4}px` }}><div class="plot-tip" hidden></div></div>
  </section>`;
}

function toData(series, points, spanS) {
  const recent = points.slice(-spanS - 1);
  const times = recent.map((point) => point.time);
  return [times, ...series.map((one) => recent.map((point) => one.value(point) ?? null))];
}

function axis(more) {
  const line = { stroke: colour("--line-soft"), width: 1 };
  return { stroke: colour("--muted"), font: "11px Inter, system-ui, sans-serif", grid: line, ticks: { show: false }, gap: 6, ...more };
}

function drawn(one, show) {
  const stroke = colour(one.colour);
  return { label: one.label, show, stroke, width: 1.6, spanGaps: true, fill: one.fill ? `${stroke}1f` : undefined, points: { show: false } };
}

function clock(seconds) {
  return new Date(seconds * 1000).toLocaleTimeString("en-GB");
}

// What the series were at the instant under the mouse.
function pointAt(plot, box, series, format) {
  const tip = box?.querySelector(".plot-tip");
  if (!tip) return;
  const index = plot.cursor.idx;
  tip.hidden = index === null || index === undefined;
  if (tip.hidden) return;
  const lines = series
    .map((one, number) => [one.label, plot.data[number + 1][index], plot.series[number + 1].show])
    .filter(([, value, show]) => show && value !== null && value !== undefined)
    .map(([label, value]) => `${label}  ${format(value)}`);
  tip.textContent = [clock(plot.data[0][index]), ...lines].join("\n");
  const left = plot.cursor.left + plot.bbox.left / devicePixelRatio;
  const flip = left > box.clientWidth / 2;
  tip.style.left = flip ? "" : `${left + 12}px`;
  tip.style.right = flip ? `${box.clientWidth - left + 12}px` : "";
}
