/** Page controls of a table. */

import { h } from "./element.js";

const SIZES = [20, 50, 100, 500];

/** Buttons for the pages and a select for the page size; hidden if all rows fit on the smallest page. */
export class Pager {
  /**
   * @param {{page: number, pageSize: number}} state current page and size; modified by this class
   * @param {function(): void} changed called after a change of the page or size
   */
  constructor(state, changed) {
    this.state = state;
    this.changed = changed;
    this.pages = 1;
    this.previous = this.button("‹ Previous", -1);
    this.next = this.button("Next ›", 1);
    this.place = h("span", { role: "status" });
    const options = SIZES.map((size) => h("option", { value: size, selected: size === state.pageSize }, String(size)));
    const choose = (event) => this.go(1, Number(event.target.value));
    const size = h("label", null, h("select", { on: { change: choose } }, options), " a page");
    this.element = h("nav", { class: "pager", "aria-label": "Pages", own: true }, this.previous, this.place, this.next, size);
    this.element.hidden = true;
  }

  button(label, step) {
    return h("button", { type: "button", on: { click: () => this.go(this.state.page + step, this.state.pageSize) } }, label);
  }

  go(page, pageSize) {
    Object.assign(this.state, { page, pageSize });
    this.changed();
  }

  /** Show the position in the list. @param {Object} answer page from the API */
  show({ page, page_count: pages, filtered_count: found }) {
    this.element.hidden = !(found > SIZES[0]);
    this.place.textContent = `Page ${page} of ${Math.max(1, pages)}`;
    this.previous.disabled = page <= 1;
    this.next.disabled = page >= pages;
  }
}
