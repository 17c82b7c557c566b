// Users of the console, and their roles.

import { h } from "../dom.js";
import * as api from "../api.js";
import { ask } from "../dialog.js";
import * as format from "../format.js";
import { say } from "../notices.js";
import { mayOperate, session } from "../session.js";
import { badge, heading } from "../parts.js";
import { dataTable } from "../table-view.js";

const ROLES = [
  ["client", "connects by a protocol, and has no console"],
  ["viewer", "sees everything except message content"],
  ["reader", "also sees message content"],
  ["operator", "may also publish, redrive, delete dead letters, close connections and manage users"],
];

export function users(view) {
  let data = null;
  const refresh = () => view.load(["users"], {}, (fresh) => (data = fresh));

  async function add(event) {
    event.preventDefault();
    const form = event.target;
    const user = Object.fromEntries(new FormData(form));
    if (!(await view.attempt(() => api.post(["users"], user)))) return;
    say(`Added ${user.name}.`);
    form.reset();
    refresh();
  }

  async function removeUser({ name }) {
    const yes = await ask({
      title: `Remove ${name}?`,
      text: "The user is logged out at once and can no longer log in. Its tokens stop working.",
      action: "Remove user",
      danger: true,
    });
    if (yes && (await view.attempt(() => api.remove(["users", name])))) {
      say(`Removed ${name}.`);
      refresh();
    }
  }

  if (mayOperate()) refresh();
  view.render("Users", () => [
    heading("Users"),
    !mayOperate()
      ? h("p", null, "Only an operator can manage users.")
      : [
          h(
            "p",
            { class: "quiet" },
            session.local
              ? "The console listens on this machine only and has no users: everyone on this machine is an operator. Once there is a user, everyone has to log in."
              : "Everyone has to log in to this console.",
          ),
          data?.items.length > 0 &&
            dataTable({
              caption: "Users",
              columns: columns(removeUser),
              items: data.items,
              key: (item) => item.name,
            }),
          data && addForm(add, data.items.length ? "viewer" : "operator"),
        ],
  ]);
}

const columns = (removeUser) => [
  { label: "Name", main: true, cell: (user) => h("span", { class: "name" }, user.name) },
  { label: "Role", cell: (user) => badge(user.role, "calm") },
  { label: "Created", cell: (user) => format.time(user.created) },
  {
    label: "Action",
    last: true,
    cell: (user) =>
      h(
        "button",
        {
          type: "button",
          class: "small",
          "aria-label": `Remove ${user.name}`,
          onclick: () => removeUser(user),
        },
        "Remove",
      ),
  },
];

// The first user has to be an operator, or nobody could add others.
const addForm = (add, usual) =>
  h(
    "section",
    { class: "panel narrow", "aria-labelledby": "add-user" },
    h("h2", { id: "add-user" }, "Add a user"),
    h(
      "form",
      { class: "form", onsubmit: add },
      h("label", null, "Name", h("input", { name: "name", required: true, autocomplete: "off" })),
      h(
        "label",
        null,
        "Password",
        h("input", {
          name: "password",
          type: "password",
          required: true,
          minlength: 8,
          autocomplete: "new-password",
        }),
      ),
      h(
        "fieldset",
        null,
        h("legend", null, "Role"),
        ROLES.map(([role, meaning]) =>
          h(
            "label",
            { key: role, class: "radio" },
            h("input", { type: "radio", name: "role", value: role, checked: role === usual }),
            h("span", null, h("b", null, role), " ", h("span", { class: "quiet" }, meaning)),
          ),
        ),
      ),
      h("button", { type: "submit", class: "primary" }, "Add user"),
    ),
  );
