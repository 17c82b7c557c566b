// One queue and its dead letters: their reasons, redrive and delete.

import { h } from "../dom.js";
import * as api from "../api.js";
import { ask } from "../dialog.js";
import * as format from "../format.js";
import { say } from "../notices.js";
import { mayOperate, mayRead } from "../session.js";
import { facts, heading, protocol, topicLink } from "../parts.js";
import { dataTable } from "../table-view.js";
import { waiting } from "./queues.js";

const PAGE = 100;
const REFRESH = 2000;

const COLUMNS = [
  { label: "Offset", main: true, cell: (item) => h("span", { class: "number" }, format.exact(item.offset)) },
  { label: "Died", cell: (item) => format.ago(item.timestamp) },
  { label: "Topic", cell: (item) => topicLink(item.topic) },
  { label: "Reason", wide: true, cell: (item) => item.reason },
  { label: "Deliveries", numeric: true, cell: (item) => format.number(item.deliveries) },
  { label: "Size", numeric: true, cell: (item) => format.number(item.size, format.size, " bytes") },
];
const CONTENT = {
  label: "Content",
  wide: true,
  cell: (item) => h("code", { class: "preview" }, item.text ?? "(binary)"),
};

export function queue(view) {
  const name = view.parts[1];
  const state = { detail: null, dead: null, busy: false };

  const refresh = () =>
    Promise.all([
      view.load(["queues", name], {}, (data) => (state.detail = data)),
      view.load(["queues", name, "dead"], { limit: PAGE }, (data) => (state.dead = data)),
    ]);
  const timer = setInterval(() => document.hidden || refresh(), REFRESH);
  view.onLeave(() => clearInterval(timer));
  refresh();

  const act = (verb, question) => async () => {
    if (!(await ask(question(state.dead.total)))) return;
    state.busy = true;
    view.update();
    const done = await view.attempt(async () => say(outcome(verb, await api.post(["queues", name, verb]))));
    state.busy = false;
    if (done) await refresh();
    view.update();
  };

  view.render(name, () => [
    h("p", { class: "trail" }, h("a", { href: "/queues" }, "Queues"), " /"),
    heading(name, state.detail && protocol(state.detail.protocol)),
    state.detail && figures(state.detail),
    state.detail?.unmatched_bindings.map((each) => h("p", { class: "quiet" }, `Binding ${each.note}.`)),
    deadLetters(state, act("redrive", redriveQuestion), act("purge", purgeQuestion)),
  ]);
}

const figures = (item) =>
  facts([
    ["Waiting", waiting(item)],
    ["In flight", format.number(item.in_flight)],
    ["Returned", format.number(item.returned)],
    ["Oldest", format.age(item.oldest)],
    ["Consumers", item.consumers ? format.number(item.consumers) : "none"],
    ["Dead letters", format.number(item.dead)],
    ["Backlog limit", item.backlog_seconds == null ? "none" : format.duration(item.backlog_seconds)],
    ["Dropped", format.number(item.dropped)],
  ]);

function deadLetters({ dead, busy }, redrive, purge) {
  if (!dead) return h("p", { class: "loading" }, "Loading…");
  const { items, total } = dead;
  return h(
    "section",
    { class: "panel", "aria-labelledby": "dead" },
    h(
      "div",
      { class: "panel-head" },
      h("h2", { id: "dead" }, "Dead letters"),
      items.length > 0 &&
        mayOperate() &&
        h(
          "div",
          { class: "buttons" },
          h("button", { type: "button", class: "primary", disabled: busy, onclick: redrive }, "Redrive all"),
          h("button", { type: "button", class: "danger", disabled: busy, onclick: purge }, "Delete all…"),
        ),
    ),
    h(
      "p",
      { class: "quiet" },
      items.length
        ? "Messages that were delivered too often without an acknowledgement. Redrive publishes them to their topics again."
        : "None. A message that is delivered too often without an acknowledgement becomes a dead letter.",
    ),
    items.length > 0 &&
      dataTable({
        caption: "Dead letters of this queue",
        columns: mayRead() ? [...COLUMNS, CONTENT] : COLUMNS,
        items,
        key: (item) => item.offset,
      }),
    total > items.length &&
      h("p", { class: "quiet" }, `${format.exact(items.length)} of ${format.exact(total)} shown.`),
  );
}

const redriveQuestion = (total) => ({
  title: `Redrive ${format.plural(total, "dead letter")}?`,
  text: "Each is published to its topic again. Every subscriber and queue of that topic receives it again.",
  action: "Redrive",
});

const purgeQuestion = (total) => ({
  title: `Delete ${format.plural(total, "dead letter")}?`,
  text: "They can no longer be redriven. The log keeps the messages until retention removes them.",
  action: "Delete",
  danger: true,
});

function outcome(verb, answer) {
  const number = answer?.redriven ?? answer?.purged ?? answer?.count;
  const what = number == null ? "Dead letters" : format.plural(number, "dead letter");
  return verb === "redrive" ? `${what} redriven.` : `${what} deleted.`;
}
