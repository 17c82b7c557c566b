// A list of messages whose rows open: content, headers, publisher, publish again.

import { h } from "./dom.js";
import * as api from "./api.js";
import { ask } from "./dialog.js";
import * as format from "./format.js";
import { say } from "./notices.js";
import { mayOperate } from "./session.js";
import { decode, decodings, preview } from "./payload.js";
import { choice, copyText, facts, protocol, publisherLink, topicLink } from "./parts.js";

const NAMES = { json: "JSON", text: "Text", hex: "Hex" };

export class Messages {
  #view;
  #withTopic;
  #open = new Set(); // offsets
  #ways = new Map(); // offset → how it is decoded, when not in the best way
  #whole = new Map(); // offset → the message that was cut in the list

  constructor(view, { withTopic = false } = {}) {
    this.#view = view;
    this.#withTopic = withTopic;
  }

  describe(items, caption) {
    return h(
      "div",
      { class: "table-box messages" },
      h(
        "table",
        { role: "table", class: "table", onkeydown: walkMessages },
        h("caption", { class: "unseen" }, caption),
        h(
          "thead",
          { role: "rowgroup" },
          h(
            "tr",
            { role: "row" },
            this.#labels().map(([label, kind]) =>
              h("th", { role: "columnheader", scope: "col", class: kind }, label),
            ),
          ),
        ),
        h(
          "tbody",
          { role: "rowgroup" },
          items.map((item) => [this.#row(item), this.#open.has(item.offset) && this.#detail(item)]),
        ),
      ),
    );
  }

  #labels() {
    const topic = this.#withTopic ? [["Topic"]] : [];
    return [
      ["Offset", "numeric"],
      ["Time"],
      ...topic,
      ["Published by"],
      ["Protocol"],
      ["Size", "numeric"],
      ["Content", "wide"],
    ];
  }

  #row(item) {
    const open = this.#open.has(item.offset);
    const cell = (label, props, ...content) =>
      h("td", { key: label, role: "cell", "data-label": label, ...props }, ...content);
    const toggle = () => this.#toggle(item.offset);
    return h(
      "tr",
      {
        key: item.offset,
        role: "row",
        class: open ? "message open" : "message",
        onclick: (event) => wants(event) && toggle(),
      },
      h(
        "th",
        { key: "Offset", role: "rowheader", scope: "row", class: "numeric main", "data-label": "Offset" },
        h(
          "button",
          {
            type: "button",
            class: "fold",
            "aria-expanded": String(open),
            "aria-label": `Message ${item.offset}`,
            onclick: toggle,
          },
          h("span", { class: "fold-mark", "aria-hidden": "true" }, open ? "▾" : "▸"),
          format.exact(item.offset),
        ),
      ),
      cell("Time", null, format.time(item.timestamp)),
      this.#withTopic && cell("Topic", null, topicLink(item.topic)),
      cell("Published by", null, publisherLink(item.publisher)),
      cell("Protocol", null, protocol(item.protocol)),
      cell("Size", { class: "numeric" }, format.number(item.size, format.size, " bytes")),
      cell(
        "Content",
        { class: "wide" },
        h("code", { class: item.text == null ? "preview hex" : "preview" }, preview(item) || "(empty)"),
      ),
    );
  }

  #toggle(offset) {
    if (!this.#open.delete(offset)) this.#open.add(offset);
    this.#view.update();
  }

  #detail(listed) {
    const item = this.#whole.get(listed.offset) ?? listed;
    const ways = decodings(item);
    const way = this.#ways.get(item.offset) ?? ways[0];
    const choose = (value) => {
      this.#ways.set(item.offset, value);
      this.#view.update();
    };
    const content = decode(item, way);
    return h(
      "tr",
      { key: `detail ${item.offset}`, role: "row", class: "detail" },
      h(
        "td",
        { role: "cell", colspan: this.#labels().length },
        h(
          "div",
          { class: "detail-head" },
          ways.length > 1
            ? choice(
                "Show as",
                ways.map((each) => [each, NAMES[each]]),
                way,
                choose,
              )
            : h("span", { class: "quiet" }, "Hex"),
          this.#actions(item, content),
        ),
        h(
          "pre",
          { class: "content", tabindex: "0", "aria-label": `Content of message ${item.offset}` },
          content || "(empty)",
        ),
        item.truncated &&
          h(
            "p",
            { class: "quiet" },
            `Only the beginning of ${format.size(item.size)} is shown. `,
            h(
              "button",
              { type: "button", class: "small", onclick: () => this.#loadWhole(item) },
              "Load the whole message",
            ),
          ),
        origin(item),
      ),
    );
  }

  #actions(item, content) {
    const again = () => publishAgain(this.#view, item);
    return h(
      "div",
      { class: "buttons" },
      navigator.clipboard &&
        h("button", { type: "button", class: "small", onclick: () => copyText(content) }, "Copy"),
      h(
        "a",
        {
          class: "button small",
          href: api.path(["topics", item.topic, "messages", String(item.offset), "payload"]),
          download: `${item.offset}`,
        },
        "Download",
      ),
      mayOperate() && h("button", { type: "button", class: "small", onclick: again }, "Publish again"),
    );
  }

  #loadWhole(item) {
    this.#view.load(["topics", item.topic, "messages", String(item.offset)], {}, (whole) =>
      this.#whole.set(item.offset, whole),
    );
  }
}

function origin(item) {
  const headers = Object.entries(item.headers ?? {});
  return facts([
    ["Published by", publisherLink(item.publisher)],
    ["Protocol", protocol(item.protocol)],
    ["Time", format.exactTime(item.timestamp)],
    ["Size", `${format.exact(item.size)} bytes`],
    ...headers.map(([name, value]) => [`header ${name}`, h("code", null, String(value))]),
  ]);
}

async function publishAgain(view, item) {
  const yes = await ask({
    title: `Publish message ${item.offset} again?`,
    text: `A copy with a new offset is published to ${item.topic}. Every subscriber of the topic receives it.`,
    action: "Publish again",
  });
  if (!yes) return;
  await view.attempt(async () => {
    const { offset } = await api.post(["messages", String(item.offset), "publish"]);
    say(`Published again at offset ${format.exact(offset)}.`);
  });
}

/** A click on a row opens it, unless it was meant for something in the row, or marks text. */
const wants = (event) => !event.target.closest("a, button") && getSelection().isCollapsed;

const STEPS = { ArrowDown: 1, ArrowUp: -1 };

/** Arrows go from message to message. */
function walkMessages(event) {
  const step = STEPS[event.key];
  if (!step || !event.target.matches(".fold")) return;
  const folds = [...event.currentTarget.querySelectorAll(".fold")];
  const next = folds[folds.indexOf(event.target) + step];
  if (!next) return;
  event.preventDefault();
  next.focus();
}

/** The publishers of the messages that are shown. */
export function publishers(items) {
  const counts = new Map();
  for (const { publisher, protocol: name } of items) {
    const key = `${name} ${publisher}`;
    const entry = counts.get(key) ?? { publisher, name, number: 0 };
    entry.number += 1;
    counts.set(key, entry);
  }
  if (!counts.size) return null;
  const sorted = [...counts.entries()].sort(([, a], [, b]) => b.number - a.number).slice(0, 8);
  return h(
    "p",
    { class: "publishers" },
    h("span", { class: "quiet" }, "Published by"),
    sorted.map(([key, { publisher, name, number }]) =>
      h(
        "span",
        { key, class: "publisher" },
        protocol(name),
        publisherLink(publisher),
        h("span", { class: "quiet number" }, `${format.exact(number)} ×`),
      ),
    ),
  );
}
