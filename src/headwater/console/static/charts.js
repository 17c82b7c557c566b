// Lines over the last minutes, drawn as SVG at the size of their box.
//
// `lineChart({times, series, format, label})` describes a chart; a series is {name, kind, values},
// and its kind ("in", "out") gives it its colour in the style sheet.

import { h, patch } from "./dom.js";
import { exactTime } from "./format.js";

const HEIGHT = 200;
const EDGE = { top: 10, right: 8, bottom: 24, left: 60 };
const MINUTES = new Intl.DateTimeFormat(navigator.language, { hour: "2-digit", minute: "2-digit" });
const SECONDS = new Intl.DateTimeFormat(navigator.language, { timeStyle: "medium" });
const FEW_MINUTES = 4 * 60e6;

/** The time of a point; with seconds where minutes would all be the same. */
function clock(times, index) {
  const short = times.at(-1) - times[0] < FEW_MINUTES;
  return (short ? SECONDS : MINUTES).format(new Date(times[index] / 1000));
}

const observer = new ResizeObserver((entries) => {
  for (const { target } of entries) target.redraw?.();
});

/** An element that draws itself whenever its data or its size changes. */
function drawing(className, draw) {
  const paint = (node) => {
    if (!node.redraw) observer.observe(node);
    node.redraw = () => draw(node, Math.floor(node.clientWidth));
    if (node.isConnected) node.redraw();
  };
  return h("div", { class: className, paint });
}

export const lineChart = (data) => drawing("chart", (node, width) => width && drawChart(node, data, width));

function drawChart(node, data, width) {
  const scale = makeScale(data, width);
  const hover = node.hover == null ? null : Math.min(node.hover, data.times.length - 1);
  patch(
    node,
    h(
      "svg",
      {
        width,
        height: HEIGHT,
        viewBox: `0 0 ${width} ${HEIGHT}`,
        role: "img",
        "aria-label": summary(data),
        onpointermove: (event) => point(node, scale.index(event.offsetX)),
        onpointerleave: () => point(node, null),
      },
      grid(data, scale, width),
      timeAxis(data, scale),
      data.series.map((each) => area(each, scale)),
      data.series.map((each) => line(each, scale)),
      hover !== null && crosshair(data, scale, hover),
    ),
    readout(data, hover),
  );
}

function point(node, index) {
  node.hover = index;
  node.redraw();
}

function makeScale({ times, series }, width) {
  const highest = niceCeiling(Math.max(0, ...series.flatMap(({ values }) => values)));
  const inner = width - EDGE.left - EDGE.right;
  const height = HEIGHT - EDGE.top - EDGE.bottom;
  const first = times[0] ?? 0;
  const span = Math.max(1, (times.at(-1) ?? 1) - first);
  const x = (index) => EDGE.left + ((times[index] - first) / span) * inner;
  const y = (value) => EDGE.top + height * (1 - value / highest);
  const index = (at) => nearest(times, first + ((at - EDGE.left) / inner) * span);
  return { highest, x, y, index, bottom: EDGE.top + height };
}

/** The smallest of 1, 2, 4, 6, 8, 10 × 10ⁿ that is not below: halves of it are readable, too. */
function niceCeiling(value) {
  if (value <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return power * [1, 2, 4, 6, 8, 10].find((step) => step * power >= value);
}

function nearest(times, wanted) {
  if (!times.length) return null;
  let best = 0;
  for (let i = 1; i < times.length; i += 1) {
    if (Math.abs(times[i] - wanted) < Math.abs(times[best] - wanted)) best = i;
  }
  return best;
}

function grid({ format }, { highest, y }, width) {
  return [0, highest / 2, highest].map((value) =>
    h(
      "g",
      { key: `grid ${value}` },
      h("line", { class: "grid", x1: EDGE.left, x2: width - EDGE.right, y1: y(value), y2: y(value) }),
      h(
        "text",
        { class: "tick", x: EDGE.left - 8, y: y(value) + 4, "text-anchor": "end" },
        format(value).replace(/\.0(?=\D)/, ""),
      ),
    ),
  );
}

function timeAxis({ times }, { x }) {
  const last = times.length - 1;
  if (last < 1) return null;
  const places = [
    [0, "start"],
    [Math.round(last / 3), "middle"],
    [Math.round((2 * last) / 3), "middle"],
    [last, "end"],
  ];
  return places.map(([index, anchor]) =>
    h(
      "text",
      { key: `time ${anchor} ${index}`, class: "tick", x: x(index), y: HEIGHT - 6, "text-anchor": anchor },
      clock(times, index),
    ),
  );
}

const points = ({ values }, { x, y }) =>
  values.map((value, i) => `${x(i).toFixed(1)},${y(value).toFixed(1)}`);

function area(series, scale) {
  if (series.values.length < 2) return null;
  const ends = [
    `${scale.x(series.values.length - 1).toFixed(1)},${scale.bottom}`,
    `${scale.x(0).toFixed(1)},${scale.bottom}`,
  ];
  return h("polygon", {
    key: `area ${series.name}`,
    class: `area ${series.kind}`,
    points: [...points(series, scale), ...ends].join(" "),
  });
}

const line = (series, scale) =>
  h("polyline", {
    key: `line ${series.name}`,
    class: `line ${series.kind}`,
    points: points(series, scale).join(" "),
  });

function crosshair({ series }, { x, y, bottom }, index) {
  return h(
    "g",
    { key: "crosshair" },
    h("line", { class: "crosshair", x1: x(index), x2: x(index), y1: EDGE.top, y2: bottom }),
    series.map(({ kind, values }) =>
      h("circle", { class: `dot ${kind}`, cx: x(index), cy: y(values[index] ?? 0), r: 3.5 }),
    ),
  );
}

/** The legend; under the pointer it shows the values of that moment. */
function readout({ times, series, format }, index) {
  const at = index ?? times.length - 1;
  const when = index === null ? "now" : clock(times, at);
  return h(
    "p",
    { class: "legend" },
    series.map(({ name, kind, values }) =>
      h("span", { key: name, class: `key ${kind}` }, name, " ", h("b", null, format(values[at] ?? 0))),
    ),
    h("span", { key: "when", class: "quiet", title: times.length ? exactTime(times[at]) : null }, when),
  );
}

function summary({ label, series, format }) {
  const parts = series.map(
    ({ name, values }) =>
      `${name}: now ${format(values.at(-1) ?? 0)}, at most ${format(Math.max(0, ...values))}`,
  );
  return `${label}. ${parts.join("; ")}.`;
}

const SPARK_HEIGHT = 36;

/** A small chart without axes, for one line of a list; `highest` is its top. */
export const sparkline = (data) => drawing("spark", (node, width) => width && drawSpark(node, data, width));

function drawSpark(node, { series, label, format, highest }, width) {
  const top = highest || 1;
  const length = Math.max(2, series[0]?.values.length ?? 0);
  const scale = {
    x: (index) => (index / (length - 1)) * width,
    y: (value) => 2 + (SPARK_HEIGHT - 4) * (1 - value / top),
    bottom: SPARK_HEIGHT - 2,
  };
  patch(
    node,
    h(
      "svg",
      {
        width,
        height: SPARK_HEIGHT,
        viewBox: `0 0 ${width} ${SPARK_HEIGHT}`,
        role: "img",
        "aria-label": summary({ label, series, format }),
      },
      series.map((each) => area(each, scale)),
      series.map((each) => line(each, scale)),
    ),
  );
}
