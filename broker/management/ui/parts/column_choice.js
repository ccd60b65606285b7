/** Which columns of a table are shown: chosen by the user, and remembered. */

import { h } from "./element.js";
import { prefer, preference } from "./preferences.js";

/** The choice, as a button that opens a list of check boxes. */
export class ColumnChoice {
  /**
   * @param {string} id of the table
   * @param {import("./table.js").Column[]} columns all there are
   * @param {function(): void} changed called when others are to be shown
   */
  constructor(id, columns, changed) {
    this.columns = columns;
    this.name = `columns.${id}`;
    // What was chosen, by key; columns that are new since then are shown as they say themselves.
    this.chosen = preference(this.name, {}) ?? {};
    this.changed = changed;
    this.element = h("details", { class: "menu", own: true }, h("summary", null, "Columns"), h("div", { class: "menu-content" }, this.boxes(), this.back()));
    this.element.addEventListener("keydown", (event) => this.closeOnEscape(event));
    this.element.addEventListener("focusout", (event) => {
      if (event.relatedTarget !== null && !this.element.contains(event.relatedTarget)) this.element.open = false;
    });
  }

  /** @returns {import("./table.js").Column[]} those that are shown, in their order */
  get shown() {
    return this.columns.filter((column) => this.isShown(column) && !column.isRedundant?.());
  }

  isShown(column) {
    return column.fixed || (this.chosen[column.key] ?? !column.hidden);
  }

  boxes() {
    this.inputs = this.columns
      .filter((column) => !column.fixed)
      .map((column) => ({ column, input: h("input", { type: "checkbox", checked: this.isShown(column), on: { change: (event) => this.choose(column, event.target.checked) } }) }));
    return this.inputs.map(({ column, input }) => h("label", { title: column.title ?? null }, input, ` ${column.label}`));
  }

  back() {
    const reset = () => {
      this.chosen = {};
      for (const { column, input } of this.inputs) input.checked = this.isShown(column);
      this.keep();
    };
    return h("button", { type: "button", class: "quiet", on: { click: reset } }, "Back to the default");
  }

  choose(column, isShown) {
    this.chosen[column.key] = isShown;
    this.keep();
  }

  keep() {
    prefer(this.name, this.chosen);
    this.changed();
  }

  closeOnEscape(event) {
    if (event.key !== "Escape" || !this.element.open) return;
    this.element.open = false;
    this.element.querySelector("summary").focus();
  }
}
