// One dialog for all questions. Escape, the backdrop and "Cancel" say no.

import { h, patch } from "./dom.js";

const dialog = document.getElementById("dialog");

/** Ask before something that cannot be undone. Resolves to whether the answer is yes. */
export function ask({ title, text, action, danger = false }) {
  const describe = (close) => [
    h("h2", { id: "dialog-title" }, title),
    h("p", null, text),
    h(
      "div",
      { class: "dialog-buttons" },
      h("button", { type: "button", onclick: () => close(false) }, "Cancel"),
      h(
        "button",
        { type: "button", class: danger ? "danger" : "primary", onclick: () => close(true) },
        action,
      ),
    ),
  ];
  return open(describe);
}

function open(describe) {
  return new Promise((resolve) => {
    let answer = false;
    const close = (value) => {
      answer = value;
      dialog.close();
    };
    dialog.onclose = () => {
      patch(dialog);
      resolve(answer);
    };
    dialog.onclick = (event) => event.target === dialog && close(false);
    patch(dialog, describe(close));
    dialog.showModal();
  });
}
