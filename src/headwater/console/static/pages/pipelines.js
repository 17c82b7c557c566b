// Spark pipelines and the progress of their tables, as the pipelines report it.

import { h } from "../dom.js";
import * as format from "../format.js";
import { badge, emptyState, heading } from "../parts.js";
import { dataTable } from "../table-view.js";

const STATES = { running: "calm", waiting: "", done: "calm", failed: "critical" };

export function pipelines(view) {
  let data = null;
  view.follow("pipelines", {}, (fresh) => (data = fresh));
  view.render("Pipelines", () => [
    heading("Pipelines"),
    !data ? h("p", { class: "loading" }, "Loading…") : data.items.length ? data.items.map(pipeline) : empty(),
  ]);
}

/** A pipeline reports its `state` itself: any part of it may be missing. */
function pipeline({ pipeline: name, stale, reported, state }, index) {
  const id = `pipeline-${index}`;
  const { mode = "running", started, log, tables = [] } = state;
  return h(
    "section",
    { key: name, class: "panel", "aria-labelledby": id },
    h(
      "div",
      { class: "panel-head" },
      h(
        "h2",
        { id },
        name,
        " ",
        stale ? badge("not running", "warning", "The pipeline has stopped reporting") : badge(mode, "calm"),
      ),
      h(
        "p",
        { class: "quiet" },
        started && ["started ", format.ago(started), " · "],
        "last report ",
        format.ago(reported),
      ),
    ),
    dataTable({
      caption: `Tables of ${name}`,
      columns: columns(log),
      items: tables,
      key: (table) => table.name,
    }),
    tables.filter((table) => table.error).map(failure),
  );
}

const columns = (log) => [
  { label: "Table", main: true, cell: (table) => h("span", { class: "name" }, table.name) },
  { label: "State", cell: (table) => badge(table.state, STATES[table.state] ?? "") },
  { label: "Progress", wide: true, cell: (table) => progress(table, log) },
  {
    label: "Lag",
    numeric: true,
    title: "Messages behind the end of the log",
    cell: (table) => format.number(table.lag),
  },
  { label: "Rows/s", numeric: true, cell: (table) => format.number(table.rows_per_second, format.rate) },
  { label: "Rows", numeric: true, cell: (table) => format.number(table.rows) },
  { label: "Last batch", numeric: true, cell: (table) => format.ago(table.last_batch) },
];

/** How much of the log a table has read. Views and tables fed by others have no offset. */
function progress({ name, offset }, log) {
  if (offset == null || !log) return h("span", { class: "quiet" }, "–");
  const all = Math.max(1, log.end - log.start);
  const share = Math.min(1, Math.max(0, (offset - log.start) / all));
  const percent = share >= 1 ? "100 %" : `${(Math.floor(share * 1000) / 10).toFixed(1)} %`;
  return h(
    "span",
    { class: "progress" },
    h(
      "svg",
      {
        class: "bar",
        viewBox: "0 0 100 6",
        preserveAspectRatio: "none",
        role: "img",
        "aria-label": `${name}: ${percent} of the log`,
      },
      h("rect", { class: "bar-all", width: 100, height: 6 }),
      h("rect", { class: "bar-done", width: share * 100, height: 6 }),
    ),
    h(
      "span",
      { class: "number", title: `offset ${format.exact(offset)} of ${format.exact(log.end)}` },
      percent,
    ),
  );
}

const failure = (table) =>
  h(
    "div",
    { key: `error ${table.name}`, class: "alert critical" },
    h("strong", null, table.name),
    h("pre", { class: "error-text", tabindex: "0" }, table.error),
  );

const empty = () =>
  emptyState(
    "No pipelines",
    "A pipeline keeps Delta tables of the topics with Spark. Create one and run it:",
    "headwater pipeline init my-pipeline",
    "headwater pipeline run --project my-pipeline",
  );
