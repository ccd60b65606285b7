/** Columns of lists. The broker describes them in lists.js, which it makes from its table of fields. */

import { h } from "./element.js";
import { ago, bytes, dateTime, exactNumber, isNumber, nameText, number, rate, shortBytes, span } from "./format.js";
import { valueTable } from "./layout.js";
import { LISTS } from "./lists.js";

/** How values are shown, by the form of the column. */
const FORMS = {
  text: (value) => (typeof value === "number" ? String(value) : value),
  table: valueTable,
  list: (values) => values.join(", "),
  name: nameText,
  figure: (value) => h("span", { class: "number" }, value),
  number,
  optional: (value) => (value === undefined ? null : number(value)),
  count: (value) => number(value ?? 0),
  exact: exactNumber,
  lost: (value = 0) => (value > 0 ? h("span", { class: "bad" }, number(value)) : number(value)),
  bytes,
  age: (seconds) => (isNumber(seconds) ? span(seconds) : null),
  rate: (value) => rate(value ?? 0),
  speed: (value = 0) => h("span", { class: "number", title: `${value} bytes a second` }, `${shortBytes(value)}/s`),
  time: (value) => (isNumber(value) ? dateTime(value) : null),
  ago: (value) => (value === null ? null : ago(value)),
};

/**
 * Return the columns of a list.
 *
 * @param {string} list its name in http/page_columns.py
 * @param {Object<string, function(Object): *|Object>} own by key, functions that make cells, or changed properties
 * @returns {import("./table.js").Column[]}
 */
export function listColumns(list, own = {}) {
  return LISTS[list].map((column) => {
    const { key, path, form } = column;
    const cell = (object) => FORMS[form](path.reduce((value, step) => value?.[step], object));
    return { ...column, cell, ...(typeof own[key] === "function" ? { cell: own[key] } : own[key]) };
  });
}
