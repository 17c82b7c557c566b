// Small pieces that several pages show.

import { h } from "./dom.js";
import { href } from "./router.js";
import { say } from "./notices.js";
import { EXAMPLES } from "./examples.js"; // made from the registry of protocols

export const heading = (title, ...more) =>
  h("div", { class: "heading" }, h("h1", { tabindex: "-1" }, breakable(title)), ...more);

/** A name that breaks into lines after its slashes first. */
const breakable = (name) => name.split("/").flatMap((level, i) => (i ? ["/", h("wbr"), level] : [level]));

export const protocol = (name) =>
  name ? h("span", { class: `protocol ${/^[a-z]+$/.test(name) ? name : ""}` }, name) : "–";

export const badge = (text, kind = "", title = null) => h("span", { class: `badge ${kind}`, title }, text);

export const topicLink = (topic) => h("a", { href: href(["topics", topic]), class: "name" }, topic);

/** Who published: leads to that client's connections. */
export const publisherLink = (name) =>
  name
    ? h("a", { href: href(["connections"], { q: name }), title: `Connections of ${name}` }, name)
    : h("span", { class: "quiet" }, "unknown");

/** A command to copy. */
export function command(text) {
  const copy = navigator.clipboard
    ? h(
        "button",
        { type: "button", class: "copy", "aria-label": `Copy: ${text}`, onclick: () => copyText(text) },
        "Copy",
      )
    : null;
  return h("div", { class: "command" }, h("code", null, text), copy);
}

export async function copyText(text) {
  await navigator.clipboard.writeText(text);
  say("Copied.");
}

/** Commands for an empty page, as far as a protocol has an example of it. */
export const publishing = (topic) => EXAMPLES.publish?.replace("{topic}", () => topic);
export const subscribing = () => EXAMPLES.subscribe;
export const consuming = () => EXAMPLES.consume ?? [];

/** An empty page: its purpose, and the commands that fill it. */
export const emptyState = (title, text, ...commands) =>
  h(
    "section",
    { class: "empty" },
    h("h2", null, title),
    h("p", null, text),
    commands.map((each) => (typeof each === "string" ? command(each) : each)),
  );

/** Names and values side by side. */
export const facts = (entries) =>
  h(
    "dl",
    { class: "facts" },
    entries
      .filter(Boolean)
      .map(([name, ...value]) => h("div", { key: name }, h("dt", null, name), h("dd", null, ...value))),
  );

/** One choice of a few, as buttons in a row. `choices`: [value, label] */
export const choice = (label, choices, current, choose) =>
  h(
    "div",
    { class: "choice", role: "group", "aria-label": label },
    choices.map(([value, text]) =>
      h(
        "button",
        {
          key: value,
          type: "button",
          "aria-pressed": String(value === current),
          onclick: () => choose(value),
        },
        text,
      ),
    ),
  );
