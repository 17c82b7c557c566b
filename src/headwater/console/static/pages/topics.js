// All topics with their messages, rates and subscribers.

import { h } from "../dom.js";
import * as format from "../format.js";
import { go, href } from "../router.js";
import { mayOperate, mayRead } from "../session.js";
import { emptyState, heading, publishing, topicLink } from "../parts.js";
import { List } from "../table.js";

const COLUMNS = [
  { label: "Topic", sort: "topic", main: true, cell: (item) => topicLink(item.topic) },
  {
    label: "Rate",
    sort: "messages_per_second",
    numeric: true,
    cell: (item) => format.number(item.messages_per_second, format.rate, " messages per second"),
  },
  { label: "Messages", sort: "count", numeric: true, cell: (item) => format.number(item.count) },
  {
    label: "Size",
    numeric: true,
    title: "An estimate",
    cell: (item) => format.number(item.bytes_estimate, format.size, " bytes, about"),
  },
  { label: "Last message", sort: "last", numeric: true, cell: (item) => format.ago(item.last) },
  { label: "Subscribers", numeric: true, cell: (item) => subscribers(item) },
];

export function topics(view) {
  const list = new List(view, "topics", {
    caption: "Topics with their messages and subscribers",
    columns: COLUMNS,
    key: (item) => item.topic,
    href: (item) => href(["topics", item.topic]),
    sort: "topic",
    search: "Search topics",
    empty,
  });
  view.render("Topics", () => [heading("Topics", mayRead() && tailForm(list)), list.describe()]);
}

const subscribers = ({ subscribers: number }) =>
  number ? h("a", { href: href(["subscriptions"]) }, format.count(number)) : format.count(number);

/** Many topics can be watched at once, by a pattern. */
const tailForm = () =>
  h(
    "form",
    { class: "inline", onsubmit: openTail },
    h("input", {
      name: "pattern",
      required: true,
      "aria-label": "Pattern of topics to watch",
      placeholder: "sensors/.*",
      class: "code",
      spellcheck: "false",
    }),
    h("button", { type: "submit" }, "Watch a pattern live"),
  );

function openTail(event) {
  event.preventDefault();
  go(href(["tail"], { pattern: new FormData(event.target).get("pattern") }));
}

const empty = () =>
  emptyState(
    "No topics yet",
    mayOperate()
      ? "The first message creates a topic. Publish one from a terminal, or here:"
      : "The first message creates a topic. Publish one from a terminal:",
    publishing("sensors/a"),
    mayOperate() &&
      h(
        "p",
        null,
        h(
          "a",
          { class: "button", href: href(["topics", "sensors/a"], { view: "publish" }) },
          "Publish to sensors/a",
        ),
      ),
  );
