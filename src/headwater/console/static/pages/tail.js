// Many topics at once, as their messages come.

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
      : h("p", { class: "nothing" }, "As a viewer you do not see the content of messages."),
  ]);
}
