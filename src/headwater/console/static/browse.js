// The messages of a topic: the newest, from an offset, or from a time, page by page.

import { h } from "./dom.js";
import * as format from "./format.js";
import { Messages, publishers } from "./messages.js";
import { emptyState, publishing } from "./parts.js";
import { mayOperate } from "./session.js";

const PAGE = 50;
const NONE = { items: [], older: null, newer: null, partial: false };

export class Browse {
  #view;
  #topic;
  #messages;
  #data = null;
  #place;

  constructor(view, topic) {
    this.#view = view;
    this.#topic = topic;
    this.#messages = new Messages(view);
    this.#place = view.query.from ? { from: view.query.from } : { newest: true };
  }

  show() {
    this.#load(this.#place);
  }

  hide() {}

  #load(place) {
    this.#place = place;
    const use = (data) => {
      if (place === this.#place) this.#data = data ?? NONE;
    };
    this.#view.load(["topics", this.#topic, "messages"], { ...place, limit: PAGE }, use, { mayLack: true });
  }

  describe() {
    const data = this.#data;
    if (!data) return h("p", { class: "loading" }, "Loading…");
    if (this.#place.newest && !data.items.length) return empty(this.#topic);
    const items = [...data.items].sort((a, b) => b.offset - a.offset);
    return h(
      "section",
      { class: "list", "aria-label": "Messages" },
      this.#toolbar(),
      publishers(items),
      items.length
        ? this.#messages.describe(items, `Messages of ${this.#topic}, the newest first`)
        : h("p", { class: "nothing" }, "No messages in this range."),
      this.#pager(items),
    );
  }

  #toolbar() {
    return h(
      "div",
      { class: "toolbar" },
      h(
        "button",
        {
          type: "button",
          class: this.#place.newest ? "primary" : "",
          onclick: () => this.#load({ newest: true }),
        },
        "Newest",
      ),
      h(
        "form",
        { class: "inline", onsubmit: (event) => this.#toOffset(event) },
        h("input", {
          name: "offset",
          type: "number",
          min: 0,
          required: true,
          placeholder: "Offset",
          "aria-label": "From offset",
        }),
        h("button", { type: "submit" }, "Go to offset"),
      ),
      h(
        "form",
        { class: "inline", onsubmit: (event) => this.#toTime(event) },
        h("input", {
          name: "time",
          type: "datetime-local",
          step: 1,
          required: true,
          "aria-label": "From time",
        }),
        h("button", { type: "submit" }, "Go to time"),
      ),
    );
  }

  #toOffset(event) {
    event.preventDefault();
    this.#load({ from: new FormData(event.target).get("offset") });
  }

  #toTime(event) {
    event.preventDefault();
    const at = new Date(new FormData(event.target).get("time")).getTime() * 1000;
    this.#load({ at });
  }

  #pager(items) {
    const { older, newer, partial } = this.#data;
    const range = items.length
      ? `Offsets ${format.exact(items.at(-1).offset)} to ${format.exact(items[0].offset)}`
      : "";
    return h(
      "div",
      { class: "pager" },
      h("p", { class: "quiet" }, range, partial && " · the search stopped early; continue with Older or Newer"),
      h(
        "button",
        { type: "button", disabled: newer == null, onclick: () => this.#load({ from: newer }) },
        "Newer",
      ),
      h(
        "button",
        { type: "button", disabled: older == null, onclick: () => this.#load({ before: older }) },
        "Older",
      ),
    );
  }
}

const empty = (topic) =>
  emptyState(
    "No messages in this topic",
    mayOperate() ? "Publish one in the tab “Publish”, or from a terminal:" : "Publish one from a terminal:",
    publishing(topic),
  );
