// The rules: who may publish, subscribe, read history and consume queues.

import { h } from "../dom.js";
import * as api from "../api.js";
import { ask } from "../dialog.js";
import { say } from "../notices.js";
import { mayOperate } from "../session.js";
import { heading } from "../parts.js";
import { dataTable } from "../table-view.js";

const ACTIONS = ["publish", "subscribe", "history", "queues"];
// What operators may do cannot be taken back.
const FIXED = "role:operator";

export function access(view) {
  let data = null;
  let answer = null;
  const refresh = () => view.load(["access"], {}, (fresh) => (data = fresh));

  async function allow(event) {
    event.preventDefault();
    const form = new FormData(event.target);
    const rule = { who: form.get("who"), may: form.getAll("may"), topics: form.get("topics") };
    if (!(await view.attempt(() => api.post(["access"], rule)))) return;
    say(`${rule.who} may ${rule.may.join(", ")} ${rule.topics}.`);
    event.target.reset();
    refresh();
  }

  async function revoke(rule) {
    const yes = await ask({
      title: `Take this back from ${rule.who}?`,
      text: `${rule.who} may then no longer ${rule.may.join(", ")} ${rule.topics}, unless another rule allows it. Connected clients notice at once.`,
      action: "Revoke",
      danger: true,
    });
    if (yes && (await view.attempt(() => api.post(["access", "revoke"], rule)))) {
      say("The rule is gone.");
      refresh();
    }
  }

  async function explain(event) {
    event.preventDefault();
    const asked = Object.fromEntries(new FormData(event.target));
    view.load(["access", "explain"], asked, (fresh) => (answer = fresh));
  }

  if (mayOperate()) refresh();
  view.render("Access", () => [
    heading("Access"),
    !mayOperate()
      ? h("p", null, "Only an operator can manage rules.")
      : [
          h("p", { class: "quiet" }, "What no rule allows is refused, in every protocol, over Flight and here."),
          data?.items.length > 0 &&
            dataTable({
              caption: "Rules",
              columns: columns(revoke),
              items: data.items,
              key: (item) => `${item.who} ${item.topics}`,
            }),
          explainForm(explain, answer),
          data && allowForm(allow),
        ],
  ]);
}

const columns = (revoke) => [
  { label: "Who", main: true, cell: (rule) => h("span", { class: "name" }, rule.who) },
  { label: "May", cell: (rule) => rule.may.join(", ") },
  { label: "Topics", cell: (rule) => h("code", null, rule.topics) },
  {
    label: "Action",
    last: true,
    cell: (rule) =>
      rule.who !== FIXED &&
      h(
        "button",
        {
          type: "button",
          class: "small",
          "aria-label": `Revoke the rule for ${rule.who} on ${rule.topics}`,
          onclick: () => revoke(rule),
        },
        "Revoke",
      ),
  },
];

const field = (label, name, example) =>
  h(
    "label",
    null,
    label,
    h("input", { name, required: true, autocomplete: "off", class: "code", placeholder: example }),
  );

const allowForm = (allow) =>
  h(
    "section",
    { class: "panel narrow", "aria-labelledby": "allow" },
    h("h2", { id: "allow" }, "Allow more"),
    h(
      "form",
      { class: "form", onsubmit: allow },
      field("Who", "who", "role:devices"),
      h(
        "fieldset",
        null,
        h("legend", null, "May"),
        ACTIONS.map((action) =>
          h(
            "label",
            { key: action, class: "radio" },
            h("input", { type: "checkbox", name: "may", value: action }),
            h("span", null, action),
          ),
        ),
      ),
      field("Topics", "topics", "sensors/{user}/*"),
      h("button", { type: "submit", class: "primary" }, "Allow"),
    ),
  );

const explainForm = (explain, answer) =>
  h(
    "section",
    { class: "panel narrow", "aria-labelledby": "explain" },
    h("h2", { id: "explain" }, "May they?"),
    h(
      "form",
      { class: "form", onsubmit: explain },
      field("Who is asked about", "who", "alice"),
      h(
        "label",
        null,
        "Action",
        h(
          "select",
          { name: "action" },
          ACTIONS.map((action) => h("option", { key: action, value: action }, action)),
        ),
      ),
      field("Topic", "topic", "sensors/a"),
      h("button", { type: "submit" }, "Explain"),
      answer && h("p", { role: "status" }, answer.why),
    ),
  );
