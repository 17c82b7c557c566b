// Messages beside the page's content: errors, a lost connection, short confirmations.

import { h, patch } from "./dom.js";

const TOAST = 4000;
// A stream that is renewed within this time is not shown as lost.
const GRACE = 700;

const banner = document.getElementById("banner");
const toast = document.getElementById("toast");
let lost = 0;
let shown = null;
let timer = 0;
let onUnauthorized = () => {};

/** Called when the API asks for a login. */
export function whenUnauthorized(action) {
  onUnauthorized = action;
}

/** An error of the API, as a banner that stays until it is dismissed or the next page. */
export function failed(error) {
  if (error.status === 401) return onUnauthorized();
  if (error.status === undefined) console.error(error);
  if (error.status === 0) return connected(false);
  if (error.status === 503) return lacking(error);
  show("error", error.message);
}

export function connected(open) {
  clearTimeout(lost);
  if (open) return recovered();
  lost = setTimeout(() => show("lost", "The connection to the broker is lost: reconnecting…"), GRACE);
}

/** The console answers, but what is behind it does not; shown until data arrives. */
export function lacking({ message }) {
  clearTimeout(lost);
  show("lost", `${message}: reconnecting…`);
}

/** Data arrived, so whatever was lost is back. */
export function recovered() {
  clearTimeout(lost);
  if (shown === "lost") clear();
}

export function clear() {
  shown = null;
  banner.hidden = true;
}

function show(kind, message) {
  shown = kind;
  banner.hidden = false;
  banner.className = `banner ${kind}`;
  const close = h("button", { type: "button", class: "plain", onclick: clear }, "Dismiss");
  patch(banner, h("span", null, message), kind === "error" && close);
}

/** A short confirmation that goes away by itself. */
export function say(message) {
  clearTimeout(timer);
  patch(toast, h("p", null, message));
  timer = setTimeout(() => patch(toast), TOAST);
}
