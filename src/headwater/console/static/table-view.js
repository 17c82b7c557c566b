// How a table looks and is walked through with the keyboard.
//
// Tables become cards on narrow screens, which takes their meaning away from screen readers unless
// each part says its role.

import { h } from "./dom.js";
import { go } from "./router.js";

export function dataTable({ caption, columns, items, key, href, header = plainLabel, label }) {
  return h(
    "div",
    { class: "table-box", tabindex: "-1" },
    h(
      "table",
      { role: "table", class: "table", onkeydown: walk, "aria-label": label },
      h("caption", { class: "unseen" }, caption),
      h(
        "thead",
        { role: "rowgroup" },
        h(
          "tr",
          { role: "row" },
          columns.map((column) => headerCell(column, header)),
        ),
      ),
      h(
        "tbody",
        { role: "rowgroup" },
        items.map((item) => row(item, columns, key(item), href?.(item))),
      ),
    ),
  );
}

function headerCell(column, header) {
  const { content, order } = header(column);
  return h(
    "th",
    {
      key: column.label,
      role: "columnheader",
      scope: "col",
      class: kind(column),
      title: column.title,
      "aria-sort": order,
    },
    column.last ? h("span", { class: "unseen" }, content) : content,
  );
}

function row(item, columns, key, href) {
  return h(
    "tr",
    { key, role: "row", class: href && "opens", onclick: href && ((event) => openRow(event, href)) },
    columns.map((column) =>
      h(
        column.main ? "th" : "td",
        {
          key: column.label,
          role: column.main ? "rowheader" : "cell",
          scope: column.main && "row",
          class: kind(column),
          "data-label": column.label,
        },
        column.cell(item),
      ),
    ),
  );
}

const kind = ({ numeric, main, wide, last }) =>
  [numeric && "numeric", main && "main", wide && "wide", last && "last"].filter(Boolean).join(" ") || null;

const plainLabel = (column) => ({ content: column.label, order: null });

/** A header that sorts: {content, order}. */
export function columnLabel(column, sort, sortBy) {
  if (!column.sort) return plainLabel(column);
  // An age grows when the time it counts from lies further back.
  const [rising, falling] = column.reversed
    ? [`-${column.sort}`, column.sort]
    : [column.sort, `-${column.sort}`];
  const up = sort === rising;
  const down = sort === falling;
  // The first click shows what is asked for most: the largest numbers, the first names.
  const next = up ? falling : down ? rising : column.numeric ? falling : rising;
  const arrow = h("span", { class: "arrow", "aria-hidden": "true" }, up ? "↑" : down ? "↓" : "↕");
  const content = h(
    "button",
    {
      type: "button",
      class: up || down ? "sort on" : "sort",
      onclick: () => sortBy(next),
    },
    column.numeric ? [arrow, column.label] : [column.label, arrow],
  );
  return { content, order: up ? "ascending" : down ? "descending" : null };
}

// A click anywhere in a row opens it, unless it was meant for something in the row, or marks text.
function openRow(event, href) {
  if (event.target.closest("a, button, input") || !getSelection().isCollapsed) return;
  go(href);
}

const STEPS = { ArrowDown: 1, ArrowUp: -1 };

/** Arrows go from row to row: to its link or button; Enter is then the browser's own. */
function walk(event) {
  const step = STEPS[event.key];
  const current = event.target.closest("tr");
  if (!step || !current || event.target.matches("input, select, textarea")) return;
  let next = current;
  do {
    next = step > 0 ? following(next) : preceding(next);
  } while (next && !handle(next));
  if (!next) return;
  event.preventDefault();
  handle(next).focus();
}

const handle = (row) => row.querySelector("tbody a[href], tbody button");
const following = (row) =>
  row.nextElementSibling ?? row.closest("thead")?.nextElementSibling?.firstElementChild;
const preceding = (row) => row.previousElementSibling;

/** From the search field into the first row. */
export function enterTable(from) {
  const first = from.closest("section")?.querySelector("tbody a[href], tbody button");
  first?.focus();
  return Boolean(first);
}
