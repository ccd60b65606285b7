/**
 * Periodic refresh: at the interval that the user chose, paused while the tab is hidden, and sooner after the connection
 * was lost.
 */

import { ConnectionLost } from "./api.js";
import { h } from "./element.js";
import { choice } from "./layout.js";
import { preference, setPreference } from "./preferences.js";

const CHOICES = [[1, "1 s"], [5, "5 s"], [30, "30 s"], [0, "off"]];
const DEFAULT_SECONDS = 5;
const RETRY_SECONDS = 2;

/** Runs a function at intervals, never concurrently. */
export class Refresher {
  /**
   * @param {function(*): void} report called after each run with the error, or null
   */
  constructor(report) {
    this.report = report;
    this.seconds = preference("refresh", DEFAULT_SECONDS);
    this.run = null;
    this.timer = null;
    /** The current run, and the one after it if it is wanted already; promises that are never rejected. */
    this.current = null;
    this.next = null;
    document.addEventListener("visibilitychange", () => {
      if (!document.hidden && this.seconds > 0) this.now();
    });
  }

  /** Set the function: it runs immediately and then at intervals. Null stops. */
  use(run) {
    clearTimeout(this.timer);
    this.run = run;
    return run === null ? null : this.now();
  }

  /** Run now, or after the current run; everyone who asks during that one gets the same. Resolves when it is done. */
  now() {
    if (this.next !== null) return this.next;
    if (this.current === null) return this.start();
    this.next = this.current.then(() => this.start());
    return this.next;
  }

  async start() {
    this.next = null;
    if (this.run === null) return;
    clearTimeout(this.timer);
    this.current = this.attempt();
    const failure = await this.current;
    this.current = null;
    if (this.next === null) this.schedule(failure);
  }

  async attempt() {
    const run = this.run;
    let failure = null;
    try {
      await run();
    } catch (error) {
      failure = error;
    }
    if (run === this.run) this.report(failure);
    return failure;
  }

  schedule(failure) {
    const seconds = failure instanceof ConnectionLost ? RETRY_SECONDS : this.seconds;
    clearTimeout(this.timer);
    if (seconds > 0) this.timer = setTimeout(() => (document.hidden ? this.schedule(null) : this.now()), seconds * 1000);
  }

  /** @returns {HTMLElement} select for the interval and a button that refreshes now */
  control() {
    const choose = (value) => {
      this.seconds = Number(value);
      setPreference("refresh", this.seconds);
      this.now();
    };
    const button = { type: "button", class: "quiet", title: "Refresh now", "aria-label": "Refresh now", on: { click: () => this.now() } };
    return h("span", { class: "control" }, choice("choose-refresh", "Refresh", CHOICES, this.seconds, choose), h("button", button, "↻"));
  }
}
