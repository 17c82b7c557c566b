// Queues: what waits, what is held, what died.

import { h } from "../dom.js";
import * as format from "../format.js";
import { href } from "../router.js";
import { badge, emptyState, heading, protocol } from "../parts.js";
import { List } from "../table.js";

const COLUMNS = [
  {
    label: "Queue",
    sort: "name",
    main: true,
    cell: (item) => h("a", { class: "name", href: href(["queues", item.name]) }, item.name),
  },
  { label: "Protocol", cell: (item) => protocol(item.protocol) },
  { label: "Waiting", sort: "waiting", numeric: true, title: "Not yet given to a consumer", cell: waiting },
  {
    label: "In flight",
    sort: "in_flight",
    numeric: true,
    title: "Given, not yet acknowledged",
    cell: (item) => format.number(item.in_flight),
  },
  {
    label: "Returned",
    numeric: true,
    title: "Came back, and are to be given again",
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
    title: "Given too often without success",
    cell: dead,
  },
];

export function queues(view) {
  const list = new List(view, "queues", {
    caption: "Queues with what waits in them",
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
        { class: "number", title: "Counting stopped here; there are more" },
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
    "A queue begins with its first consumer, of Prism or of BMTP. This one belongs to an app of Prism:",
    "headwater app add shop",
    "headwater sub prism://shop:SECRET@localhost/orders",
  );
