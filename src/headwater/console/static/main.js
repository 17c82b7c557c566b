// Start here: who is it, which page, and what holds on all pages (navigation, keys, theme).

import { h, patch } from "./dom.js";
import { ApiError } from "./api.js";
import { go, here, href, onRoute } from "./router.js";
import { identify, logout, mayOperate, session } from "./session.js";
import { clear, failed, whenUnauthorized } from "./notices.js";
import { enterTable } from "./table-view.js";
import { View } from "./view.js";
import { access } from "./pages/access.js";
import { audit } from "./pages/audit.js";
import { connection } from "./pages/connection.js";
import { connections } from "./pages/connections.js";
import { login } from "./pages/login.js";
import { missing } from "./pages/missing.js";
import { overview } from "./pages/overview.js";
import { pipelines } from "./pages/pipelines.js";
import { queue } from "./pages/queue.js";
import { queues } from "./pages/queues.js";
import { subscriptions } from "./pages/subscriptions.js";
import { tail } from "./pages/tail.js";
import { topic } from "./pages/topic.js";
import { topics } from "./pages/topics.js";
import { users } from "./pages/users.js";

// First segment → [the page of it alone, the page of it and a name].
const PAGES = {
  "": [overview],
  topics: [topics, topic],
  tail: [tail],
  connections: [connections, connection],
  queues: [queues, queue],
  subscriptions: [subscriptions],
  pipelines: [pipelines],
  users: [users],
  access: [access],
  audit: [audit],
  login: [login],
};

const NAVIGATION = [
  ["", "Overview", "M3 12h4l3-8 4 16 3-8h4"],
  ["topics", "Topics", "M4 6h16M4 12h16M4 18h10"],
  ["connections", "Connections", "M8 12h8M5 8a4 4 0 0 0 0 8h3M19 8a4 4 0 0 1 0 8h-3M8 8H5M16 8h3"],
  ["queues", "Queues", "M4 5h16v4H4zM4 10h16v4H4zM4 15h16v4H4z"],
  ["subscriptions", "Subscriptions", "M5 12a7 7 0 0 1 7 7M5 5a14 14 0 0 1 14 14M6 18h.010"],
  ["pipelines", "Pipelines", "M4 6h5v5H4zM15 13h5v5h-5zM9 8.500h3.500v7H15"],
];

const USERS = [
  "users",
  "Users",
  "M9 11a3.500 3.500 0 1 0 0-7 3.500 3.500 0 0 0 0 7zM3 20c0-4 3-6 6-6s6 2 6 6M16 5a3 3 0 0 1 0 6M18 14c2 1 3 3 3 6",
];

const FOR_OPERATORS = [
  USERS,
  ["access", "Access", "M12 3l7 3v5c0 5-3 8-7 10-4-2-7-5-7-10V6zM9 12l2 2 4-4"],
  ["audit", "Audit", "M6 3h9l4 4v14H6zM9 12h7M9 16h7M9 8h3"],
];

let view = null;

function show() {
  view?.leave();
  clear();
  const { parts, query } = here();
  const [first = "", ...rest] = parts;
  const page = PAGES[first]?.[rest.length] ?? missing;
  view = new View(document.getElementById("main"), parts, query);
  patch(document.getElementById("main"));
  patchShell(first);
  page(view);
  document.querySelector("main .begin")?.focus();
}

/** A new page: a reader's cursor belongs at its top, not where the old page had it. */
function turn() {
  show();
  scrollTo(0, 0);
  if (!document.querySelector("main .begin"))
    document.querySelector("main h1")?.focus({ preventScroll: true });
}

function patchShell(current) {
  const pages = !session.known ? [] : mayOperate() ? [...NAVIGATION, ...FOR_OPERATORS] : NAVIGATION;
  patch(
    document.getElementById("nav"),
    h(
      "ul",
      null,
      pages.map((each) => navigationItem(each, current)),
    ),
  );
  patch(document.getElementById("aside"), aside());
}

const navigationItem = ([name, label, icon], current) =>
  h(
    "li",
    { key: name },
    h(
      "a",
      { href: href([name]), "aria-current": name === current ? "page" : null },
      h("svg", { viewBox: "0 0 24 24", class: "icon", "aria-hidden": "true" }, h("path", { d: icon })),
      label,
    ),
  );

function aside() {
  const dark = window.headwaterTheme.current === "dark";
  return [
    h(
      "button",
      { key: "theme", type: "button", class: "plain", onclick: toggleTheme },
      dark ? "Light colours" : "Dark colours",
    ),
    session.known && h("a", { key: "api", href: "/api/docs", target: "_blank", rel: "noopener" }, "API"),
    session.known &&
      !session.local &&
      h("button", { key: "out", type: "button", class: "plain", onclick: leave }, "Log out"),
    session.known &&
      h(
        "p",
        { key: "who", class: "who" },
        session.local ? "local · no login" : `${session.name} · ${session.role}`,
      ),
  ];
}

function toggleTheme() {
  window.headwaterTheme.toggle();
  patchShell(here().parts[0] ?? "");
}

async function leave() {
  try {
    await logout();
    askForLogin();
  } catch (error) {
    failed(error);
  }
}

function askForLogin() {
  session.known = false;
  const { parts } = here();
  if (parts[0] === "login") return;
  go(href(["login"], { next: location.pathname + location.search }), { replace: true });
}

function keys(event) {
  const writing = event.target.matches("input, textarea, select");
  const search = document.querySelector("main .search");
  if (event.key === "/" && !writing && search) {
    event.preventDefault();
    search.select();
  } else if (event.key === "ArrowDown" && event.target === search) {
    if (enterTable(search)) event.preventDefault();
  }
}

async function start() {
  whenUnauthorized(askForLogin);
  onRoute(turn);
  document.addEventListener("keydown", keys);
  try {
    await identify();
  } catch (error) {
    if (!(error instanceof ApiError) || error.status !== 401) {
      // The console may be a moment behind the broker; nothing can be shown until it answers.
      failed(error);
      setTimeout(start, 2000);
      return;
    }
    return askForLogin();
  }
  show();
}

start();
