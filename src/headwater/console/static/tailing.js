// Live messages. Those beyond what a person can read are counted, not shown.

import { h } from "./dom.js";
import * as format from "./format.js";
import { Messages, publishers } from "./messages.js";
import { recovered } from "./notices.js";

const KEPT = 500;
const FILTER_PAUSE = 300;

export class Tailing {
  #view;
  #topic;
  #kind;
  #messages;
  #stream = null;
  #rows = [];
  #skipped = 0;
  #shown = 0;
  #rate = 0;
  #filter = "";
  #timer = 0;

  /** `kind`: whether `topic` is one topic or a pattern of many. */
  constructor(view, topic, kind = "topic") {
    this.#view = view;
    this.#topic = topic;
    this.#kind = kind;
    this.#messages = new Messages(view, { withTopic: kind === "pattern" });
    view.onLeave(() => clearTimeout(this.#timer));
  }

  show() {
    this.#stream ??= this.#view.stream(
      ["topics", this.#topic, "live"],
      { filter: this.#filter, kind: this.#kind },
      { rows: (event) => this.#take(event) },
      { evenHidden: true },
    );
    this.#view.update();
  }

  /** The rows stay. */
  hide() {
    this.#stream?.close();
    this.#stream = null;
    this.#rate = 0;
    this.#view.update();
  }

  #take({ items, skipped, rate }) {
    this.#rows = [...items].reverse().concat(this.#rows).slice(0, KEPT);
    this.#shown += items.length;
    this.#skipped += skipped;
    this.#rate = rate;
    recovered();
    this.#view.update();
  }

  #clear() {
    this.#rows = [];
    this.#shown = 0;
    this.#skipped = 0;
    this.#view.update();
  }

  #setFilter(text) {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#restart(text), FILTER_PAUSE);
  }

  #restart(filter) {
    this.#filter = filter;
    const running = this.#stream !== null;
    this.hide();
    this.#clear();
    if (running) this.show();
  }

  describe() {
    const running = this.#stream !== null;
    return h(
      "section",
      { class: "list", "aria-label": "Live messages" },
      h(
        "div",
        { class: "toolbar" },
        h(
          "button",
          {
            type: "button",
            class: running ? "" : "primary",
            onclick: () => (running ? this.hide() : this.show()),
          },
          running ? "Pause" : "Continue",
        ),
        h("button", { type: "button", disabled: !this.#rows.length, onclick: () => this.#clear() }, "Clear"),
        h("input", {
          type: "search",
          class: "search",
          placeholder: "Only messages that contain…",
          "aria-label": "Only messages that contain",
          oninput: (event) => this.#setFilter(event.target.value),
          spellcheck: "false",
          autocomplete: "off",
        }),
        this.#counters(running),
      ),
      publishers(this.#rows),
      this.#rows.length
        ? h(
            "div",
            { class: "tail", tabindex: "0", role: "region", "aria-label": "Messages, the newest first" },
            this.#messages.describe(this.#rows, "Live messages, the newest first"),
          )
        : h(
            "p",
            { class: "nothing" },
            running
              ? ["Waiting for messages", this.#filter && ` that contain “${this.#filter}”`, "…"]
              : "Paused.",
          ),
    );
  }

  #counters(running) {
    return h(
      "p",
      { class: "counters" },
      h("span", { class: running ? "pulse on" : "pulse", "aria-hidden": "true" }),
      h("span", null, running ? format.rate(this.#rate) : "paused"),
      h("span", { class: "quiet" }, `${format.exact(this.#shown)} shown`),
      h(
        "span",
        {
          class: this.#skipped ? "skipped" : "quiet",
          title: "At most 200 messages per second are shown; a filter examines at most 2,000 per second",
        },
        `${format.exact(this.#skipped)} not shown`,
      ),
    );
  }
}
