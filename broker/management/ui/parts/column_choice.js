/** Selection of the visible columns of a table, stored as a preference. */

import { h } from "./element.js";
import { preference, setPreference } from "./preferences.js";

/** Button that opens a list of check boxes, one per column. */
export class ColumnChoice {
  /**
   * @param {string} id of the table
   * @param {import("./table.js").Column[]} columns all columns of the table
   * @param {function(): void} changed called after a change of the selection
   */
  constructor(id, columns, changed) {
    this.columns = columns;
    this.name = `columns.${id}`;
    // Selection by column key. Columns without an entry use their own default.
    this.chosen = preference(this.name, {}) ?? {};
    this.changed = changed;
    this.element = h("details", { class: "menu", own: true }, h("summary", null, "Columns"), h("div", { class: "menu-content" }, this.boxes(), this.resetButton()));
    this.element.addEventListener("keydown", (event) => this.closeOnEscape(event));
    this.element.addEventListener("focusout", (event) => {
      if (event.relatedTarget !== null && !this.element.contains(event.relatedTarget)) this.element.open = false;
    });
  }

  /** @returns {import("./table.js").Column[]} the visible columns in order */
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

  resetButton() {
    const reset = () => {
      this.chosen = {};
      for (const { column, input } of this.inputs) input.checked = this.isShown(column);
      this.save();
    };
    return h("button", { type: "button", class: "quiet", on: { click: reset } }, "Restore the default");
  }

  choose(column, isShown) {
    this.chosen[column.key] = isShown;
    this.save();
  }

  save() {
    setPreference(this.name, this.chosen);
    this.changed();
  }

  closeOnEscape(event) {
    if (event.key !== "Escape" || !this.element.open) return;
    this.element.open = false;
    this.element.querySelector("summary").focus();
  }
}
