// Lists of the API as tables: search, sort, pages, keyboard, and cards on narrow screens.
//
// A column: {label, cell(item), sort?: field of the API, numeric?: right-aligned, main?: names the row}

import { h } from "./dom.js";
import { note } from "./router.js";
import { exact } from "./format.js";
import { columnLabel, dataTable } from "./table-view.js";

const SEARCH_PAUSE = 200;
const ROWS = 50;

/** A list of the API that is searched, sorted and paged there, and followed live. */
export class List {
  #view;
  #page;
  #options;
  #cursors = []; // of the pages before this one, to go back
  #cursor = null;
  #timer = 0;

  /** `options`: {caption, columns, key(item), sort, href?(item), search, empty(), more?} */
  constructor(view, page, options) {
    this.#view = view;
    this.#page = page;
    this.#options = options;
    this.q = view.query.q ?? "";
    this.sort = view.query.sort ?? options.sort;
    this.data = null;
    view.onLeave(() => clearTimeout(this.#timer));
    this.#follow();
  }

  #follow() {
    const { q, sort } = this;
    const query = { q, sort, limit: ROWS, cursor: this.#cursor };
    this.#view.follow(this.#page, query, (data) => (this.data = data));
  }

  #changed() {
    this.#cursors = [];
    this.#cursor = null;
    const { q, sort } = this;
    note([this.#page], { q, sort: sort === this.#options.sort ? null : sort });
    this.#follow();
  }

  #search(text) {
    this.q = text;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#changed(), SEARCH_PAUSE);
  }

  #sortBy(sort) {
    this.sort = sort;
    this.#changed();
  }

  #next() {
    this.#cursors.push(this.#cursor);
    this.#cursor = this.data.next;
    this.#follow();
  }

  #previous() {
    this.#cursor = this.#cursors.pop();
    this.#follow();
  }

  describe() {
    const { empty } = this.#options;
    if (!this.data) return h("p", { class: "loading" }, "Loading…");
    const nothing = this.data.items.length === 0;
    if (nothing && !this.q && this.#cursor === null) return empty();
    return h(
      "section",
      { class: "list" },
      this.#toolbar(),
      nothing ? this.#noMatch() : this.#table(),
      this.#pager(),
    );
  }

  #toolbar() {
    return h(
      "div",
      { class: "toolbar" },
      h("input", {
        type: "search",
        class: "search",
        value: this.q,
        placeholder: this.#options.search,
        "aria-label": this.#options.search,
        "aria-keyshortcuts": "/",
        autocomplete: "off",
        spellcheck: "false",
        oninput: (event) => this.#search(event.target.value),
      }),
      h("kbd", { class: "hint", "aria-hidden": "true", title: "Press / to search" }, "/"),
      this.#sortSelect(),
    );
  }

  // Cards have no header row to click on.
  #sortSelect() {
    const sortable = this.#options.columns.filter((column) => column.sort);
    if (!sortable.length) return null;
    const orders = sortable.flatMap(({ label, sort, reversed }) => [
      h("option", { value: sort, selected: sort === this.sort }, `${label} ${reversed ? "↓" : "↑"}`),
      h(
        "option",
        { value: `-${sort}`, selected: `-${sort}` === this.sort },
        `${label} ${reversed ? "↑" : "↓"}`,
      ),
    ]);
    return h(
      "select",
      {
        class: "sort-select",
        "aria-label": "Sort by",
        onchange: (event) => this.#sortBy(event.target.value),
      },
      orders,
    );
  }

  #table() {
    const { caption, columns, key, href } = this.#options;
    const header = (column) => columnLabel(column, this.sort, (sort) => this.#sortBy(sort));
    return dataTable({ caption, columns, items: this.data.items, key, href, header });
  }

  #noMatch() {
    return h("p", { class: "nothing" }, `Nothing matches “${this.q}”.`);
  }

  #pager() {
    const { items, next, total } = this.data;
    const before = this.#cursors.length * ROWS;
    const range = items.length ? `${exact(before + 1)}–${exact(before + items.length)}` : "0";
    const several = before > 0 || next;
    return h(
      "div",
      { class: "pager" },
      h("p", { class: "quiet" }, total == null ? range : `${range} of ${exact(total)}`),
      several &&
        h("button", { type: "button", disabled: before === 0, onclick: () => this.#previous() }, "Previous"),
      several && h("button", { type: "button", disabled: !next, onclick: () => this.#next() }, "Next"),
    );
  }
}
