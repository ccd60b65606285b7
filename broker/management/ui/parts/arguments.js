/** Editor for AMQP tables, such as arguments and headers. */

import { h } from "./element.js";
import { FieldError, readNumber } from "./field.js";

const TYPES = ["String", "Number", "Boolean", "List", "JSON"];
const READERS = { String: (text) => text, Number: readNumber, Boolean: readBoolean, List: readList, JSON: readJson };

/** Editor with a row of key, value and type per entry, and one empty row at the end. */
export class ArgumentsField {
  /**
   * @param {string} id prefix of the elements' ids; the label has `${id}-label`
   * @param {{value?: Object, suggestions?: Object[]}} field `suggestions`: see offer()
   */
  constructor(id, { value = {}, suggestions = [] }) {
    this.rows = h("div", { class: "arguments-rows" });
    this.chips = h("div", { class: "chips" });
    this.element = h("div", { class: "arguments", role: "group", "aria-labelledby": `${id}-label`, own: true }, this.rows, this.chips);
    this.offer(suggestions);
    this.write(value);
  }

  /**
   * Replace the suggestions, which have a button each.
   *
   * @param {Array<{key: string, label?: string, type?: string, value?: string, hint?: string, placeholder?: string}>} suggestions
   *   `hint`: description on hover; `placeholder`: example of a value
   */
  offer(suggestions) {
    const buttons = suggestions.map((each) =>
      h("button", { type: "button", class: "chip", title: each.hint ?? each.key, on: { click: () => this.suggest(each) } }, each.label ?? each.key),
    );
    this.chips.replaceChildren(...(buttons.length > 0 ? [h("span", { class: "muted" }, "Add: "), ...buttons] : []));
  }

  /** @returns {HTMLInputElement} the input that gets the focus after an error */
  firstInput() {
    return this.rows.querySelector("input");
  }

  /** Replace all rows. @param {Object<string, *>} table */
  write(table) {
    this.rows.replaceChildren();
    for (const [key, value] of Object.entries(table)) this.addRow(key, typed(value), typeOf(value));
    this.addRow();
  }

  /** @returns {Object<string, *>} the table @throws {FieldError} a value does not match its type */
  read() {
    // Without a prototype, because names may be those of inherited properties.
    const table = Object.create(null);
    for (const row of this.rows.children) {
      const [key, value, type] = row.querySelectorAll("input, select");
      if (key.value === "" && value.value === "") continue;
      if (key.value === "") throw new FieldError(`The value ${value.value} has no name.`);
      if (key.value in table) throw new FieldError(`${key.value} is there twice.`);
      try {
        table[key.value] = READERS[type.value](value.value);
      } catch (error) {
        throw new FieldError(`${key.value}: ${error.message}`);
      }
    }
    return table;
  }

  addRow(key = "", value = "", type = "String") {
    const grow = () => {
      if (row === this.rows.lastElementChild) this.addRow();
    };
    const on = { input: grow };
    const row = h(
      "div",
      { class: "arguments-row" },
      h("input", { type: "text", "aria-label": "Name", placeholder: "name", value: key, spellcheck: "false", on }),
      h("span", { "aria-hidden": "true" }, "="),
      h("input", { type: "text", "aria-label": "Value", placeholder: "value", value, spellcheck: "false", on }),
      h("select", { "aria-label": "Type" }, TYPES.map((each) => h("option", { value: each, selected: each === type }, each))),
      h("button", { type: "button", class: "quiet", "aria-label": "Remove", title: "Remove", on: { click: () => this.removeRow(row) } }, "×"),
    );
    this.rows.append(row);
    return row;
  }

  removeRow(row) {
    row.remove();
    if (this.rows.lastElementChild === null || this.rows.lastElementChild.querySelector("input").value !== "") this.addRow();
    this.rows.lastElementChild.querySelector("input").focus();
  }

  suggest({ key, type = "String", value = "", placeholder = "value" }) {
    const there = [...this.rows.children].find((row) => row.querySelector("input").value === key);
    const last = this.rows.lastElementChild;
    const row = there ?? this.addRow(key, value, type);
    if (there === undefined && last.querySelector("input").value === "") this.rows.append(last);
    const input = row.querySelectorAll("input")[1];
    input.placeholder = placeholder;
    input.focus();
  }
}

function typeOf(value) {
  if (typeof value === "number") return "Number";
  if (typeof value === "boolean") return "Boolean";
  if (Array.isArray(value) && value.every((each) => typeof each === "string")) return "List";
  return typeof value === "string" ? "String" : "JSON";
}

function typed(value) {
  const type = typeOf(value);
  if (type === "List") return value.join(", ");
  return type === "JSON" ? JSON.stringify(value) : String(value);
}

function readBoolean(text) {
  if (text !== "true" && text !== "false") throw new FieldError("This must be true or false.");
  return text === "true";
}

function readList(text) {
  return text === "" ? [] : text.split(",").map((each) => each.trim());
}

function readJson(text) {
  try {
    return JSON.parse(text);
  } catch {
    throw new FieldError("This is not JSON.");
  }
}
