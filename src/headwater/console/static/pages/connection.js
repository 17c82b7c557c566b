// One connection: its traffic, what it takes of the event loop, and why it was slowed.

import { h } from "../dom.js";
import * as format from "../format.js";
import { mayOperate } from "../session.js";
import { badge, emptyState, facts, heading } from "../parts.js";
import { dataTable } from "../table-view.js";
import { called, close, spoken } from "./connections.js";

const REFRESH = 1000;

const COLUMNS = [
  { label: "Reason", main: true, cell: (item) => item.reason },
  { label: "Meaning", wide: true, cell: (item) => item.meaning },
  { label: "Times", numeric: true, cell: (item) => format.number(item.times) },
  { label: "Total", numeric: true, cell: (item) => format.span(item.seconds) },
  { label: "Last second", numeric: true, cell: (item) => format.share(item.share) },
  { label: "Now since", cell: (item) => (item.since ? format.time(item.since) : "–") },
];

export function connection(view) {
  const id = view.parts[1];
  let data;
  const refresh = () =>
    view.load(["connections", id], {}, (fresh) => (data = fresh), { mayLack: true });
  const timer = setInterval(() => document.hidden || data === null || refresh(), REFRESH);
  view.onLeave(() => clearInterval(timer));
  refresh();

  view.render(`Connection ${id}`, () => [
    h("p", { class: "trail" }, h("a", { href: "/connections" }, "Connections"), " /"),
    heading(data ? called(data) : `Connection ${id}`, data && spoken(data), data && closing(view, data)),
    data === null && emptyState("This connection is closed", "The client is gone, or has connected again."),
    data === undefined && h("p", { class: "loading" }, "Loading…"),
    data && figures(data),
    data && slowdowns(data.slowed),
  ]);
}

const closing = (view, data) =>
  mayOperate() && h("button", { type: "button", class: "small", onclick: () => close(view, data) }, "Close");

const figures = (item) =>
  facts([
    ["Address", item.address],
    ["Connected", format.ago(item.since)],
    ["From client", traffic(item.in)],
    ["To client", traffic(item.out)],
    ["Subscriptions", format.number(item.subscriptions)],
    ["Lag", format.number(item.lag)],
    ["Share of loop", format.share(item.share)],
    ["Loop time, total", format.span(item.loop_seconds)],
  ]);

const traffic = ({ bytes, messages, bytes_per_second: rate }) =>
  `${format.sizeRate(rate)} · ${format.size(bytes)} · ${format.plural(messages, "message")}`;

const slowdowns = (reasons) =>
  h(
    "section",
    { class: "panel", "aria-labelledby": "slowed" },
    h(
      "div",
      { class: "panel-head" },
      h("h2", { id: "slowed" }, "Slowed"),
      reasons.some(({ since }) => since) && badge("now", "warning"),
    ),
    h(
      "p",
      { class: "quiet" },
      reasons.length
        ? "The broker does not read from a client while it is slowed. Nothing that the client has sent is lost."
        : "Never. The broker has read what this client sent as fast as it came.",
    ),
    reasons.length > 0 &&
      dataTable({
        caption: "Reasons for which the client was slowed",
        columns: COLUMNS,
        items: reasons,
        key: (item) => item.reason,
      }),
  );
