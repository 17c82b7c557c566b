// The audit trail: who logged in, failed to, changed access, redrove, deleted, exported.

import { h } from "../dom.js";
import * as format from "../format.js";
import { badge, heading } from "../parts.js";
import { dataTable } from "../table-view.js";

const COLUMNS = [
  { label: "Time", cell: (item) => format.time(item.timestamp) },
  { label: "Event", cell: (item) => badge(kindOf(item), kindOf(item) === "failure" ? "bad" : "calm") },
  { label: "Who", main: true, cell: (item) => h("span", { class: "name" }, eventOf(item).who || "") },
  { label: "What", cell: (item) => h("code", null, whatOf(item)) },
];

export function audit(view) {
  let data = null;
  const load = (before) =>
    view.load(["audit"], before === null ? {} : { before }, (fresh) => (data = fresh));
  load(null);
  view.render("Audit", () => [
    heading("Audit"),
    h("p", { class: "quiet" }, "What happened at the gate, and what operators did, the newest first."),
    data?.items.length > 0 &&
      dataTable({
        caption: "Events",
        columns: COLUMNS,
        items: [...data.items].reverse(),
        key: (item) => item.offset,
      }),
    data && !data.items.length && h("p", null, "Nothing is on record yet."),
    data?.older !== null &&
      data?.older !== undefined &&
      h("button", { type: "button", onclick: () => load(data.older) }, "Older events"),
  ]);
}

const kindOf = ({ topic }) => topic.split("/").at(-1);

function eventOf({ text }) {
  try {
    return JSON.parse(text);
  } catch {
    return {};
  }
}

/** All that an event says besides its time and who it is about. */
function whatOf(item) {
  const { at, who, ...rest } = eventOf(item);
  return Object.entries(rest)
    .map(([name, value]) => `${name}: ${typeof value === "string" ? value : JSON.stringify(value)}`)
    .join(", ");
}
