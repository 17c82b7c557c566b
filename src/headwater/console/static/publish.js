// Publish a message to a topic.

import { h } from "./dom.js";
import * as api from "./api.js";
import * as format from "./format.js";
import { href } from "./router.js";

export class Publish {
  #view;
  #topic;
  #headers = []; // keys of the rows of headers
  #next = 0;
  #encoding = "text";
  #result = null;

  constructor(view, topic) {
    this.#view = view;
    this.#topic = topic;
  }

  show() {}

  hide() {}

  describe() {
    return h(
      "section",
      { class: "panel narrow", "aria-label": "Publish" },
      h(
        "form",
        { class: "form", onsubmit: (event) => this.#submit(event), onkeydown: submitByKey },
        h(
          "label",
          null,
          "Content",
          h("textarea", {
            name: "content",
            rows: 8,
            class: "code",
            spellcheck: "false",
            placeholder: '{"temperature": 21.5}',
          }),
        ),
        h(
          "fieldset",
          { class: "row" },
          h("legend", null, "Encoding"),
          this.#radio("text", "Text"),
          this.#radio("base64", "Base64"),
        ),
        h(
          "fieldset",
          null,
          h("legend", null, "Headers"),
          this.#headers.map((key) => this.#header(key)),
          h("button", { type: "button", class: "small", onclick: () => this.#addHeader() }, "Add a header"),
        ),
        h(
          "div",
          { class: "buttons" },
          h("button", { type: "submit", class: "primary", "aria-keyshortcuts": "Control+Enter" }, "Publish"),
          h("span", { class: "quiet" }, "Ctrl + Enter"),
        ),
        h(
          "p",
          { role: "status", class: "result" },
          this.#result && [
            `Stored at offset ${format.exact(this.#result)}. `,
            h("a", { href: href(["topics", this.#topic], { from: this.#result }) }, "Show it"),
          ],
        ),
      ),
    );
  }

  #radio(value, label) {
    return h(
      "label",
      { class: "radio" },
      h("input", { type: "radio", name: "encoding", value, checked: value === this.#encoding }),
      h("span", null, label),
    );
  }

  #header(key) {
    return h(
      "div",
      { key, class: "header-row" },
      h("input", { name: "header-name", "aria-label": "Name of the header", placeholder: "name" }),
      h("input", { name: "header-value", "aria-label": "Value of the header", placeholder: "value" }),
      h(
        "button",
        {
          type: "button",
          class: "small",
          "aria-label": "Remove this header",
          onclick: () => this.#dropHeader(key),
        },
        "×",
      ),
    );
  }

  #addHeader() {
    this.#headers.push(`header ${this.#next++}`);
    this.#view.update();
  }

  #dropHeader(key) {
    this.#headers = this.#headers.filter((each) => each !== key);
    this.#view.update();
  }

  async #submit(event) {
    event.preventDefault();
    const form = new FormData(event.target);
    this.#result = null;
    await this.#view.attempt(async () => {
      const answer = await api.post(["topics", this.#topic, "messages"], message(form));
      this.#result = answer.offset;
    });
  }
}

function message(form) {
  const names = form.getAll("header-name");
  const values = form.getAll("header-value");
  const headers = Object.fromEntries(names.map((name, i) => [name, values[i]]).filter(([name]) => name));
  return { [form.get("encoding")]: form.get("content"), headers };
}

function submitByKey(event) {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) event.currentTarget.requestSubmit();
}
