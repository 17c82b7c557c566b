// Server-sent events: one stream per page, which comes back by itself.
//
// A stream of a page that nobody sees is closed, so that forgotten tabs cost the broker nothing.

import { get, path } from "./api.js";
import { failed } from "./notices.js";

const FIRST_WAIT = 500;
const LONGEST_WAIT = 8000;

export class Stream {
  #source = null;
  #timer = 0;
  #wait = FIRST_WAIT;
  #url;
  #handlers;
  #onState;
  #onVisible = () => this.#followVisibility();
  #closed = false;

  /** `handlers`: event name → function of its parsed data. `onState(open)`: came or went. */
  constructor(parts, query, handlers, onState, { evenHidden = false } = {}) {
    this.#url = path(parts, query);
    this.#handlers = handlers;
    this.#onState = onState;
    if (!evenHidden) document.addEventListener("visibilitychange", this.#onVisible);
    this.#open();
  }

  close() {
    this.#closed = true;
    document.removeEventListener("visibilitychange", this.#onVisible);
    this.#drop();
  }

  #open() {
    if (this.#closed) return;
    this.#drop();
    const source = new EventSource(this.#url);
    source.onopen = () => {
      this.#wait = FIRST_WAIT;
      this.#onState(true);
    };
    source.onerror = () => this.#lost();
    for (const [name, handle] of Object.entries(this.#handlers)) {
      source.addEventListener(name, (event) => handle(JSON.parse(event.data)));
    }
    this.#source = source;
  }

  // The browser's own way back gives up when the server answers with an error, and never waits
  // longer each time; so it is done here.
  #lost() {
    this.#drop();
    this.#onState(false);
    this.#timer = setTimeout(() => this.#retry(), this.#wait);
    this.#wait = Math.min(this.#wait * 2, LONGEST_WAIT);
  }

  // A stream does not tell why it was refused: the session may have ended meanwhile.
  async #retry() {
    try {
      await get(["me"]);
    } catch (error) {
      if (error.status === 401) return failed(error);
    }
    this.#open();
  }

  #drop() {
    clearTimeout(this.#timer);
    this.#source?.close();
    this.#source = null;
  }

  #followVisibility() {
    this.#drop();
    if (!document.hidden) this.#open();
  }
}
