// The page for an unknown address.

import { h } from "../dom.js";
import { heading } from "../parts.js";

export function missing(view) {
  view.render("Not found", () => [
    heading("Page not found"),
    h("p", null, "There is no page at this address. ", h("a", { href: "/" }, "Go to the overview"), "."),
  ]);
}
