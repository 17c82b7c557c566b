// Queues: messages that wait, are in flight, or are dead.

import { h } from "../dom.js";
import * as format from "../format.js";
import { href } from "../router.js";
import { badge, consuming, emptyState, heading, protocol } from "../parts.js";
import { List } from "../table.js";

const COLUMNS = [
  {
    label: "Queue",
    sort: "name",
    main: true,
    cell: (item) => h("a", { class: "name", href: href(["queues", item.name]) }, item.name),
  },
  { label: "Protocol", cell: (item) => protocol(item.protocol) },
  { label: "Waiting", sort: "waiting", numeric: true, title: "Not yet delivered to a consumer", cell: waiting },
  {
    label: "In flight",
    sort: "in_flight",
    numeric: true,
    title: "Delivered, not yet acknowledged",
    cell: (item) => format.number(item.in_flight),
  },
  {
    label: "Returned",
    numeric: true,
    title: "Returned by a consumer, to be delivered again",
    cell: (item) => format.number(item.returned),
  },
  { label: "Oldest", sort: "oldest", reversed: true, numeric: true, cell: (item) => format.age(item.oldest) },
  {
    label: "Consumers",
    sort: "consumers",
    numeric: true,
    cell: (item) => (item.consumers ? format.number(item.consumers) : badge("none", "warning")),
  },
  {
    label: "Dead letters",
    sort: "dead",
    numeric: true,
    title: "Delivered too often without an acknowledgement",
    cell: dead,
  },
];

export function queues(view) {
  const list = new List(view, "queues", {
    caption: "Queues with their messages and consumers",
    columns: COLUMNS,
    key: (item) => item.name,
    href: (item) => href(["queues", item.name]),
    sort: "name",
    search: "Search queues",
    empty,
  });
  view.render("Queues", () => [heading("Queues"), list.describe()]);
}

export function waiting(item) {
  return item.waiting_is_partial
    ? h(
        "span",
        { class: "number", title: "At least this many; counting stopped here" },
        `${format.count(item.waiting)}+`,
      )
    : format.number(item.waiting);
}

function dead(item) {
  if (!item.dead) return "0";
  return h(
    "a",
    { class: "badge critical", href: href(["queues", item.name]) },
    `${format.count(item.dead)} dead`,
  );
}

const empty = () =>
  emptyState(
    "No queues yet",
    "The first consumer creates a queue. Start one from a terminal:",
    ...consuming(),
  );
