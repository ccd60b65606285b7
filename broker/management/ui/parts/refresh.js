/**
 * Asking again and again: at the interval that the user likes, not while nobody looks, and soon after the connection
 * was lost.
 */

import { choice } from "./choice.js";
import { h } from "./element.js";
import { ConnectionLost } from "./api.js";
import { prefer, preference } from "./preferences.js";

const CHOICES = [[1, "1 s"], [5, "5 s"], [30, "30 s"], [0, "off"]];
const DEFAULT_SECONDS = 5;
const RETRY_SECONDS = 2;

/** Runs something at intervals, never twice at a time. */
export class Refresher {
  /**
   * @param {function(*): void} report called after each run with what went wrong, null if nothing did
   */
  constructor(report) {
    this.report = report;
    this.seconds = preference("refresh", DEFAULT_SECONDS);
    this.run = null;
    this.timer = null;
    this.isRunning = false;
    this.isWantedAgain = false;
    document.addEventListener("visibilitychange", () => {
      if (!document.hidden && this.seconds > 0) this.now();
    });
  }

  /** Run this from now on, at once and then at intervals; null for nothing. */
  use(run) {
    clearTimeout(this.timer);
    this.run = run;
    return run === null ? null : this.now();
  }

  /** Run now; after the run that is under way, if there is one. */
  async now() {
    if (this.run === null) return;
    if (this.isRunning) {
      this.isWantedAgain = true;
      return;
    }
    clearTimeout(this.timer);
    this.isRunning = true;
    const failure = await this.attempt();
    this.isRunning = false;
    this.schedule(failure);
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
    if (this.isWantedAgain) {
      this.isWantedAgain = false;
      this.now();
      return;
    }
    const seconds = failure instanceof ConnectionLost ? RETRY_SECONDS : this.seconds;
    clearTimeout(this.timer);
    if (seconds > 0) this.timer = setTimeout(() => (document.hidden ? this.schedule(null) : this.now()), seconds * 1000);
  }

  /** @returns {HTMLElement} the choice of the interval, and a button for at once */
  control() {
    const choose = (value) => {
      this.seconds = Number(value);
      prefer("refresh", this.seconds);
      this.now();
    };
    const button = { type: "button", class: "quiet", title: "Refresh now", "aria-label": "Refresh now", on: { click: () => this.now() } };
    return h("span", { class: "control" }, choice("choose-refresh", "Refresh", CHOICES, this.seconds, choose), h("button", button, "↻"));
  }
}
