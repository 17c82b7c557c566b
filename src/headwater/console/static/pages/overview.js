// Traffic, alerts, and the state of the log.

import { h } from "../dom.js";
import { lineChart, sparkline } from "../charts.js";
import * as format from "../format.js";
import { href } from "../router.js";
import { choice, emptyState, facts, heading, protocol, publishing } from "../parts.js";

const UNITS = {
  messages: { in: "in", out: "out", format: format.rate, label: "Messages per second" },
  bytes: { in: "bytes_in", out: "bytes_out", format: format.sizeRate, label: "Bytes per second" },
};

// The page that shows the cause of a kind of alert.
const REMEDIES = {
  backlog: "/queues?sort=-waiting",
  dead: "/queues?sort=-dead",
  dropped: "/queues?sort=-waiting",
  gap: "/subscriptions?sort=-lag",
  greedy: "/connections?sort=-share",
  lag: "/connections?sort=-share",
  slow: "/connections?sort=-lag",
};

export function overview(view) {
  let data = null;
  let unit = "messages";
  const chooseUnit = (value) => {
    unit = value;
    view.update();
  };
  view.follow("overview", {}, (fresh) => (data = fresh));
  view.render("Overview", () => [
    heading(
      "Overview",
      data &&
        h("p", { class: "quiet" }, `version ${data.version} · up ${format.duration(data.uptime_seconds)}`),
    ),
    data
      ? [
          alerts(data.alerts),
          tiles(data),
          data.log.end === data.log.start && !data.topics && firstSteps(),
          traffic(data, unit, chooseUnit),
          eventLoop(data.loop),
          protocols(data),
        ]
      : h("p", { class: "loading" }, "Loading…"),
  ]);
}

function alerts(list) {
  if (!list.length) return null;
  return h(
    "ul",
    { class: "alerts", "aria-label": "Alerts" },
    list.map(({ severity, kind, message, since }) =>
      h(
        "li",
        { key: kind, class: severity === "critical" ? "alert critical" : "alert" },
        h("strong", null, severity === "critical" ? "Critical" : "Warning"),
        kind in REMEDIES ? h("a", { href: REMEDIES[kind] }, message) : h("span", null, message),
        h("span", { class: "quiet" }, "first seen ", format.time(since)),
      ),
    ),
  );
}

function tiles(data) {
  const { log } = data;
  return h(
    "div",
    { class: "tiles" },
    tile(
      "In",
      format.number(data.in.messages_per_second, format.rate, " messages per second"),
      [format.sizeRate(data.in.bytes_per_second), " · ", format.number(data.in.messages), " total"],
      null,
      "in",
    ),
    tile(
      "Out",
      format.number(data.out.messages_per_second, format.rate, " messages per second"),
      [format.sizeRate(data.out.bytes_per_second), " · ", format.number(data.out.messages), " total"],
      null,
      "out",
    ),
    tile("Log", format.number(log.bytes, format.size, " bytes"), [
      h(
        "span",
        {
          title: `All messages before this offset are durable. The log has ${format.plural(log.segments, "segment")}, offsets ${format.exact(log.start)} to ${format.exact(log.end)}.`,
        },
        `watermark ${format.exact(log.watermark)}`,
      ),
    ]),
    tile("Sync to disk, p50", format.milliseconds(log.sync_ms_p50), [
      `p99 ${format.milliseconds(log.sync_ms_p99)}`,
    ]),
    tile(
      "Connections",
      format.number(data.connections),
      [format.plural(data.subscriptions, "subscription"), slowed(data.loop)],
      ["connections"],
    ),
    tile("Topics", format.number(data.topics), [format.number(log.end - log.start), " messages"], ["topics"]),
    tile(
      "Queues",
      format.number(data.queues),
      [data.dead_letters ? "some with dead letters" : "no dead letters"],
      ["queues"],
    ),
    tile(
      "Dead letters",
      format.number(data.dead_letters),
      [data.dead_letters ? "redrive them" : "nothing to redrive"],
      ["queues"],
      data.dead_letters ? "attention" : "",
    ),
  );
}

/** How many clients the broker does not read from now. */
function slowed(loop) {
  const reasons = loop.slowed.filter(({ connections }) => connections);
  const total = reasons.reduce((sum, { connections }) => sum + connections, 0);
  if (!total) return null;
  const why = reasons.map(({ connections, meaning }) => `${format.exact(connections)}: ${meaning}`);
  return h("span", { title: why.join("\n") }, ` · ${format.count(total)} slowed`);
}

function tile(name, value, detail, link = null, kind = "") {
  const inside = [
    h("span", { class: "tile-name" }, name),
    h("span", { class: "tile-value" }, value),
    h("span", { class: "tile-detail" }, detail),
  ];
  return h(link ? "a" : "div", { key: name, class: `tile ${kind}`, href: link && href(link) }, inside);
}

const firstSteps = () =>
  emptyState(
    "Nothing has been published yet",
    "Publish the first message from a terminal, with any protocol, and watch it here:",
    publishing("sensors/a"),
  );

/** A broker that has just started has not seen 15 minutes yet. */
function span(times) {
  const minutes = Math.round(((times.at(-1) ?? 0) - (times[0] ?? 0)) / 60e6);
  return minutes > 1 ? `Last ${minutes} minutes` : "Last minute";
}

function traffic({ history }, unit, chooseUnit) {
  const { in: coming, out: going, format: unitFormat, label } = UNITS[unit];
  const series = [
    { name: "In", kind: "in", values: history[coming] },
    { name: "Out", kind: "out", values: history[going] },
  ];
  return h(
    "section",
    { class: "panel", "aria-labelledby": "traffic" },
    h(
      "div",
      { class: "panel-head" },
      h("h2", { id: "traffic" }, span(history.times)),
      choice(
        "Unit",
        [
          ["messages", "Messages"],
          ["bytes", "Bytes"],
        ],
        unit,
        chooseUnit,
      ),
    ),
    lineChart({ times: history.times, series, format: unitFormat, label: `${label}, the last 15 minutes` }),
  );
}

function eventLoop(loop) {
  return h(
    "section",
    { class: "panel", "aria-labelledby": "loop" },
    h(
      "div",
      { class: "panel-head" },
      h("h2", { id: "loop" }, "Event loop"),
      h("a", { href: href(["connections"], { sort: "-share" }) }, "Clients by share"),
    ),
    facts([
      ["Busy", explained(format.share(loop.busy), "Part of a processor that the event loop uses")],
      ["Turns", format.number(loop.turns_per_second, format.rate, " turns per second")],
      ["Turn, p50", explained(format.milliseconds(loop.turn_ms_p50), TURN)],
      ["Turn, p99", explained(format.milliseconds(loop.turn_ms_p99), TURN)],
      ["Lag, p99", explained(format.milliseconds(loop.lag_ms_p99), LAG)],
      ["Longest lag", explained(format.milliseconds(loop.lag_ms_longest), LAG)],
    ]),
  );
}

const TURN = "One round over all clients that have something to do, in the last 10 seconds";
const LAG = "How late the loop came to what was due, in the last minute: all clients waited for so long";

const explained = (text, title) => h("span", { class: "number", title }, text);

function protocols({ protocols: list, history }) {
  return h(
    "section",
    { class: "panel", "aria-labelledby": "protocols" },
    h(
      "div",
      { class: "panel-head" },
      h("h2", { id: "protocols" }, "By protocol"),
      h(
        "p",
        { class: "legend" },
        h("span", { class: "key in" }, "In"),
        h("span", { class: "key out" }, "Out"),
      ),
    ),
    h(
      "ul",
      { class: "protocols" },
      list.map((each) => protocolLine(each, history.protocols[each.name])),
    ),
  );
}

function protocolLine({ name, connections, in: coming, out: going }, past) {
  const series = [
    { name: "In", kind: "in", values: past?.in ?? [] },
    { name: "Out", kind: "out", values: past?.out ?? [] },
  ];
  const highest = Math.max(0, ...series.flatMap(({ values }) => values));
  return h(
    "li",
    { key: name },
    h(
      "div",
      { class: "protocol-name" },
      protocol(name),
      h(
        "a",
        { class: "quiet", href: href(["connections"], { q: name }) },
        format.plural(connections, "connection"),
      ),
    ),
    sparkline({ series, highest, format: format.rate, label: `${name}, the last 15 minutes` }),
    facts([
      ["In", format.number(coming.messages_per_second, format.rate, " messages per second")],
      ["Out", format.number(going.messages_per_second, format.rate, " messages per second")],
      ["Peak", format.number(highest, format.rate, " messages per second")],
      ["Total", format.number(coming.messages + going.messages)],
    ]),
  );
}
