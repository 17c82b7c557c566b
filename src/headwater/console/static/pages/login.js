// The login form, for a console that has users.

import { h } from "../dom.js";
import { failed } from "../notices.js";
import { go } from "../router.js";
import { login as logIn } from "../session.js";
import { command, heading } from "../parts.js";

export function login(view) {
  let wrong = "";

  async function submit(event) {
    event.preventDefault();
    const { name, password } = Object.fromEntries(new FormData(event.target));
    wrong = "";
    try {
      await logIn(name, password);
      go(destination(view.query.next), { replace: true });
    } catch (error) {
      if (!error.status || error.status >= 500) failed(error);
      else wrong = error.message;
      view.update();
    }
  }

  view.render("Log in", () =>
    h(
      "div",
      { class: "login" },
      heading("Log in"),
      h(
        "form",
        { class: "form", onsubmit: submit },
        h(
          "label",
          null,
          "Name",
          h("input", { name: "name", class: "begin", autocomplete: "username", required: true }),
        ),
        h(
          "label",
          null,
          "Password",
          h("input", {
            name: "password",
            type: "password",
            autocomplete: "current-password",
            required: true,
          }),
        ),
        h("p", { class: "wrong", role: "alert" }, wrong),
        h("button", { type: "submit", class: "primary" }, "Log in"),
      ),
      h("p", { class: "quiet" }, "No user yet? On the broker's machine:"),
      command("headwater user add NAME --role operator"),
    ),
  );
}

/** Only ever a page of this console. */
function destination(next) {
  const url = new URL(next ?? "/", location.origin);
  return url.origin === location.origin && !url.pathname.startsWith("/login")
    ? url.pathname + url.search
    : "/";
}
