// One topic: its messages, live messages, and publishing.

import { h } from "../dom.js";
import { Browse } from "../browse.js";
import * as format from "../format.js";
import { Publish } from "../publish.js";
import { href, note } from "../router.js";
import { mayOperate, mayRead } from "../session.js";
import { facts, heading } from "../parts.js";
import { Tailing } from "../tailing.js";

const REFRESH = 2000;

export function topic(view) {
  const name = view.parts[1];
  const tabs = {
    messages: new Browse(view, name),
    live: new Tailing(view, name),
    publish: new Publish(view, name),
  };
  const state = { info: null, tab: mayOpen(view.query.view) ? view.query.view : "messages" };

  const refresh = () => view.load(["topics", name], {}, (data) => (state.info = data), { mayLack: true });
  const timer = setInterval(() => document.hidden || refresh(), REFRESH);
  view.onLeave(() => clearInterval(timer));
  const open = (tab) => {
    tabs[state.tab].hide();
    state.tab = tab;
    tabs[tab].show();
    note(["topics", name], { view: tab === "messages" ? null : tab });
    view.update();
  };
  if (mayRead()) tabs[state.tab].show();
  refresh();

  view.render(name, () => [
    h("p", { class: "trail" }, h("a", { href: "/topics" }, "Topics"), " /"),
    heading(name),
    state.info && figures(state.info),
    mayRead() ? [tabBar(state.tab, open), tabs[state.tab].describe()] : noContent(),
  ]);
}

const TABS = () => [
  ["messages", "Messages"],
  ["live", "Watch live"],
  ...(mayOperate() ? [["publish", "Publish"]] : []),
];

const mayOpen = (tab) => TABS().some(([name]) => name === tab);

const tabBar = (current, open) =>
  h(
    "div",
    { class: "tabs", role: "group", "aria-label": "Views of the topic" },
    TABS().map(([tab, label]) =>
      h(
        "button",
        {
          key: tab,
          type: "button",
          class: "tab",
          "aria-pressed": String(tab === current),
          onclick: () => open(tab),
        },
        label,
      ),
    ),
  );

const figures = (info) =>
  facts([
    ["Rate", format.number(info.messages_per_second, format.rate, " messages per second")],
    ["Messages", format.number(info.count)],
    info.bytes_estimate != null && ["Size", format.number(info.bytes_estimate, format.size, " bytes, about")],
    ["First", info.first == null ? "–" : format.time(info.first)],
    ["Last", format.ago(info.last)],
    [
      "Subscribers",
      info.subscribers ? h("a", { href: href(["subscriptions"]) }, format.count(info.subscribers)) : "none",
    ],
  ]);

const noContent = () =>
  h(
    "p",
    { class: "nothing" },
    "A viewer does not see message content. An operator can give you the role reader.",
  );
