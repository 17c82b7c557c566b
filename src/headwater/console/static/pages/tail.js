// Live messages of all topics that match a pattern.

import { h } from "../dom.js";
import { mayRead } from "../session.js";
import { heading } from "../parts.js";
import { Tailing } from "../tailing.js";

export function tail(view) {
  const pattern = view.query.pattern ?? ".*";
  const tailing = new Tailing(view, pattern, "pattern");
  if (mayRead()) tailing.show();
  view.render(`Live: ${pattern}`, () => [
    h("p", { class: "trail" }, h("a", { href: "/topics" }, "Topics"), " / live"),
    heading(pattern),
    mayRead()
      ? tailing.describe()
      : h("p", { class: "nothing" }, "A viewer does not see message content."),
  ]);
}
