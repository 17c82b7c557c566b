// What every page is made with: it renders, follows a live stream, and cleans up when it is left.

import { patch } from "./dom.js";
import * as api from "./api.js";
import { Stream } from "./live.js";
import { connected, failed, lacking, recovered } from "./notices.js";

const TICK = 1000; // ages grow by themselves

export class View {
  #root;
  #describe = () => null;
  #frame = 0;
  #left = [];
  #stream = null;

  constructor(root, parts, query) {
    this.#root = root;
    this.parts = parts;
    this.query = query;
    this.gone = false;
    const timer = setInterval(() => this.update(), TICK);
    this.onLeave(() => clearInterval(timer));
  }

  /** Describe the page; called again on every update. */
  render(title, describe) {
    document.title = `${title} · Headwater`;
    this.#describe = describe;
    this.#paint();
  }

  /** Something changed: paint with the next frame, however many changes there are until then. */
  update() {
    if (!this.#frame) this.#frame = requestAnimationFrame(() => this.#paint());
  }

  #paint() {
    this.#frame = 0;
    if (this.gone) return;
    patch(this.#root, this.#describe());
  }

  /** The data of a page, now and whenever it changes. Replaces the stream before. */
  follow(page, query, use) {
    this.#stream?.close();
    const take = (data) => {
      recovered();
      use(data);
      this.update();
    };
    const stream = new Stream(["live"], { page, ...query }, { data: take, problem: lacking }, connected);
    this.#stream = stream;
    // The list itself says what is wrong with a request; a stream cannot.
    this.load([page], query, (data) => stream === this.#stream && use(data));
  }

  /** Read once; errors are shown. With `mayLack`, a missing resource is used as null. */
  async load(parts, query, use, { mayLack = false } = {}) {
    try {
      const data = await (mayLack ? orNull(api.get(parts, query)) : api.get(parts, query));
      if (this.gone) return;
      recovered();
      use(data);
      this.update();
    } catch (error) {
      if (!this.gone) failed(error);
    }
  }

  /** Do something that can fail, and say so when it does. Returns whether it went well. */
  async attempt(action) {
    try {
      await action();
      this.update();
      return true;
    } catch (error) {
      failed(error);
      return false;
    }
  }

  stream(parts, query, handlers, options) {
    const stream = new Stream(parts, query, { ...handlers, problem: lacking }, connected, options);
    this.onLeave(() => stream.close());
    return stream;
  }

  onLeave(action) {
    this.#left.push(action);
  }

  leave() {
    this.gone = true;
    this.#stream?.close();
    for (const action of this.#left) action();
  }
}

async function orNull(answer) {
  try {
    return await answer;
  } catch (error) {
    if (error.status === 404) return null;
    throw error;
  }
}
