/** What the user is told: banners for what lasts, an error where it belongs, and short confirmations. */

import { h, patch } from "./element.js";

const SHOWN_MS = 4000;

/** A place for one message at a time, read out by screen readers when it changes. */
export class Notice {
  /**
   * @param {"error"|"warning"|"done"} kind how it looks; errors are read out at once
   */
  constructor(kind) {
    this.kind = kind;
    this.element = h("div", { class: `notice ${kind}`, role: kind === "done" ? "status" : "alert", own: true });
    this.element.hidden = true;
    this.timer = null;
  }

  /** Show a text or elements. */
  show(...content) {
    clearTimeout(this.timer);
    patch(this.element, content);
    this.element.hidden = false;
    if (this.kind === "done") this.timer = setTimeout(() => this.clear(), SHOWN_MS);
  }

  /** Show nothing. */
  clear() {
    clearTimeout(this.timer);
    this.element.hidden = true;
    this.element.replaceChildren();
  }
}
