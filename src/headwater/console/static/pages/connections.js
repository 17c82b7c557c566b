// Connections with their traffic and lag, their share of the event loop, and who is slowed.

import { h } from "../dom.js";
import * as api from "../api.js";
import { ask } from "../dialog.js";
import * as format from "../format.js";
import { say } from "../notices.js";
import { href } from "../router.js";
import { mayOperate } from "../session.js";
import { badge, emptyState, heading, protocol, subscribing } from "../parts.js";
import { List } from "../table.js";

export function connections(view) {
  const list = new List(view, "connections", {
    caption: "Current connections with their traffic",
    columns: [...COLUMNS, ...(mayOperate() ? [closing(view)] : [])],
    key: (item) => item.id,
    href: (item) => href(["connections", String(item.id)]),
    sort: "-since",
    search: "Search by client, address or protocol",
    empty,
  });
  view.render("Connections", () => [heading("Connections"), list.describe()]);
}

const COLUMNS = [
  { label: "Client", sort: "name", main: true, cell: client },
  { label: "Protocol", sort: "protocol", cell: (item) => spoken(item) },
  {
    label: "From client",
    sort: "in_rate",
    numeric: true,
    title: "Traffic that the client publishes",
    cell: (item) => traffic(item.in),
  },
  {
    label: "To client",
    sort: "out_rate",
    numeric: true,
    title: "Traffic that the client receives",
    cell: (item) => traffic(item.out),
  },
  { label: "Age", sort: "since", reversed: true, numeric: true, cell: (item) => format.age(item.since) },
  { label: "Subscriptions", sort: "subscriptions", numeric: true, cell: subscriptions },
  { label: "Lag", sort: "lag", numeric: true, title: "Messages behind the end of the log", cell: lag },
  {
    label: "Loop",
    sort: "share",
    numeric: true,
    title: "Share of the event loop’s time in the last second",
    cell: (item) => format.share(item.share),
  },
  {
    label: "Slowed",
    sort: "slowed",
    numeric: true,
    title: "Part of the last second in which the broker did not read from the client",
    cell: slowed,
  },
];

export const called = (item) => item.name || item.client || item.address;

export const spoken = (item) =>
  h("span", { class: "spoken" }, protocol(item.protocol), item.secure && badge("TLS", "", "Encrypted"));

function client(item) {
  const name = called(item);
  return h(
    "div",
    { class: "two-lines" },
    h("a", { class: "name", href: href(["connections", String(item.id)]) }, name),
    h(
      "span",
      { class: "quiet" },
      [item.client !== name && item.client, item.address !== name && item.address]
        .filter(Boolean)
        .join(" · "),
    ),
  );
}

const traffic = ({ bytes, messages, bytes_per_second: rate }) =>
  h(
    "div",
    { class: "two-lines" },
    format.number(rate, format.sizeRate, " bytes per second"),
    h(
      "span",
      { class: "quiet", title: `${format.exact(messages)} messages, ${format.exact(bytes)} bytes` },
      `${format.size(bytes)} total`,
    ),
  );

function subscriptions(item) {
  if (!item.subscriptions) return "0";
  return h("a", { href: href(["subscriptions"], { q: called(item) }) }, format.count(item.subscriptions));
}

function lag(item) {
  if (!item.behind) return format.number(item.lag ?? 0);
  return badge(`${format.count(item.lag)} behind`, "warning", format.exact(item.lag));
}

/** The reasons of now; what there was before is on the connection's own page. */
function slowed(item) {
  const current = item.slowed.filter(({ share, since }) => share > 0 || since);
  if (!current.length) return format.number(0);
  return h(
    "span",
    { class: "reasons" },
    current.map(({ reason, share, meaning }) =>
      badge(`${reason} ${format.share(share)}`, "warning", meaning),
    ),
  );
}

const closing = (view) => ({
  label: "Action",
  last: true,
  cell: (item) =>
    h(
      "button",
      {
        type: "button",
        class: "small",
        "aria-label": `Close ${item.address}`,
        onclick: () => close(view, item),
      },
      "Close",
    ),
});

export async function close(view, item) {
  const name = called(item);
  const yes = await ask({
    title: "Close this connection?",
    text: `${name} (${item.protocol}, ${item.address}) is disconnected. The client may connect again. Nothing in the log is lost.`,
    action: "Close connection",
    danger: true,
  });
  if (yes && (await view.attempt(() => api.remove(["connections", String(item.id)])))) say(`Closed ${name}.`);
}

const empty = () =>
  emptyState(
    "No connections",
    "Connect a client that subscribes and stays connected:",
    subscribing(),
  );
