// Subscriptions with their position in the log and their lag.

import { h } from "../dom.js";
import * as format from "../format.js";
import { href } from "../router.js";
import { badge, emptyState, heading, protocol, subscribing } from "../parts.js";
import { List } from "../table.js";

const COLUMNS = [
  { label: "Filter", sort: "filter", main: true, wide: true, cell: (item) => h("code", null, item.filter) },
  {
    label: "Client",
    sort: "client",
    cell: (item) => h("a", { href: href(["connections"], { q: item.client }) }, item.client || "–"),
  },
  { label: "Protocol", sort: "protocol", cell: (item) => protocol(item.protocol) },
  {
    label: "Kind",
    cell: (item) =>
      item.durable
        ? badge(item.durable, "calm", "Durable: the broker keeps its position while the client is away")
        : h("span", { class: "quiet" }, "live"),
  },
  {
    label: "Position",
    numeric: true,
    title: "Offset of the next message",
    cell: (item) => format.exact(item.position),
  },
  {
    label: "Lag",
    sort: "lag",
    numeric: true,
    title: "Messages behind the end of the log",
    cell: (item) => format.number(item.lag),
  },
];

export function subscriptions(view) {
  const list = new List(view, "subscriptions", {
    caption: "Subscriptions with their position in the log",
    columns: COLUMNS,
    key: (item) => `${item.connection} ${item.key} ${item.filter} ${item.durable}`,
    search: "Search by filter, client or protocol",
    empty,
  });
  view.render("Subscriptions", () => [heading("Subscriptions"), list.describe()]);
}

const empty = () =>
  emptyState(
    "No subscriptions",
    "Subscribe from a terminal; new messages appear there:",
    subscribing(),
  );
