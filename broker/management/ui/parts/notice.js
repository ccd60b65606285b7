/** Messages to the user: banners, errors and short confirmations. */

import { h, patch } from "./element.js";

const SHOWN_MS = 4000;

/** Element that shows one message at a time and announces it to screen readers. */
export class Notice {
  /**
   * @param {"error"|"warning"|"done"} kind style; errors and warnings are announced immediately
   */
  constructor(kind) {
    this.kind = kind;
    this.element = h("div", { class: `notice ${kind}`, role: kind === "done" ? "status" : "alert", own: true });
    this.element.hidden = true;
    this.timer = null;
  }

  /** Show text or elements. */
  show(...content) {
    clearTimeout(this.timer);
    patch(this.element, content);
    this.element.hidden = false;
    if (this.kind === "done") this.timer = setTimeout(() => this.clear(), SHOWN_MS);
  }

  /** Hide the message. */
  clear() {
    clearTimeout(this.timer);
    this.element.hidden = true;
    this.element.replaceChildren();
  }
}
