// Addresses of pages, on the browser's history.

const listeners = [];

/** `href("topics", name)` → "/topics/name"; names with slashes become one segment. */
export function href(parts, query = {}) {
  const given = Object.entries(query).filter(([, value]) => value != null && value !== "");
  const search = new URLSearchParams(given).toString();
  return `/${parts.map(encodeURIComponent).join("/")}${search && "?"}${search}`;
}

/** Where we are: decoded segments of the path and the query. */
export function here() {
  const parts = location.pathname.split("/").filter(Boolean).map(decoded);
  return { parts, query: Object.fromEntries(new URLSearchParams(location.search)) };
}

function decoded(segment) {
  try {
    return decodeURIComponent(segment);
  } catch {
    return segment; // an address typed by hand may hold a lone %
  }
}

export function go(url, { replace = false } = {}) {
  if (replace) history.replaceState(null, "", url);
  else history.pushState(null, "", url);
  for (const listener of listeners) listener();
}

/** Write the state of a page into the address without leaving the page. */
export function note(parts, query) {
  history.replaceState(null, "", href(parts, query));
}

export function onRoute(listener) {
  listeners.push(listener);
  addEventListener("popstate", listener);
  document.addEventListener("click", followLink);
}

function followLink(event) {
  const link = event.target.closest?.("a[href]");
  const plain = event.button === 0 && !event.metaKey && !event.ctrlKey && !event.shiftKey && !event.altKey;
  if (!link || !plain || link.target || link.hasAttribute("download")) return;
  const url = new URL(link.href);
  const ours = url.origin === location.origin && !url.pathname.startsWith("/api/") && !url.hash;
  if (!ours) return;
  event.preventDefault();
  go(url.pathname + url.search);
}
