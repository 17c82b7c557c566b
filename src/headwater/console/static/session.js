// The user, and what its role may do. Buttons that it may not use are not shown.

import * as api from "./api.js";

const RANK = { viewer: 0, reader: 1, operator: 2 };

export const session = { name: "", role: "viewer", local: false, known: false };

/** Ask the broker who we are. Throws an ApiError with status 401 when a login is needed. */
export async function identify() {
  Object.assign(session, await api.get(["me"]), { known: true });
}

export async function login(name, password) {
  await api.post(["login"], { name, password });
  await identify();
}

export async function logout() {
  await api.post(["logout"]);
  session.known = false;
}

const atLeast = (role) => RANK[session.role] >= RANK[role];

export const mayRead = () => atLeast("reader");
export const mayOperate = () => atLeast("operator");
