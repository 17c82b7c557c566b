// An address that leads nowhere.

import { h } from "../dom.js";
import { heading } from "../parts.js";

export function missing(view) {
  view.render("Not found", () => [
    heading("There is no such page"),
    h("p", null, "The address leads nowhere. ", h("a", { href: "/" }, "Go to the overview"), "."),
  ]);
}
