// The one way to the admin API. Every answer is JSON or an ApiError with a sentence in it.

const ROOT = "/api/v1";

export class ApiError extends Error {
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

/** A path below the API's root; names with slashes become one segment. */
export function path(parts, query = {}) {
  const given = Object.entries(query).filter(([, value]) => value != null && value !== "");
  const search = new URLSearchParams(given).toString();
  return `${ROOT}/${parts.map(encodeURIComponent).join("/")}${search && "?"}${search}`;
}

async function request(method, url, body) {
  const init = { method, headers: { Accept: "application/json" } };
  // The header proves that the request comes from this page: no foreign form can send it.
  if (method !== "GET") init.headers["X-Headwater"] = "1";
  if (body !== undefined) {
    init.headers["Content-Type"] = "application/json";
    init.body = JSON.stringify(body);
  }
  let response;
  try {
    response = await fetch(url, init);
  } catch {
    throw new ApiError(0, "unreachable", "The console does not answer.");
  }
  return read(response);
}

async function read(response) {
  const text = await response.text();
  let data = null;
  try {
    data = text ? JSON.parse(text) : null;
  } catch {
    throw new ApiError(response.status, "not_json", `The answer (${response.status}) is not JSON.`);
  }
  if (response.ok) return data;
  const error = data?.error ?? {};
  throw new ApiError(
    response.status,
    error.code ?? "error",
    error.message ?? `The API answered ${response.status}.`,
  );
}

export const get = (parts, query) => request("GET", path(parts, query));
export const post = (parts, body = {}) => request("POST", path(parts), body);
export const remove = (parts) => request("DELETE", path(parts));
