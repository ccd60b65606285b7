/** Building blocks of pages. */

import { h } from "./element.js";
import { plain, withLineEnds } from "./format.js";

/**
 * Make the header of a page.
 *
 * @param {string|Array} title text or nodes
 * @param {...*} beside nodes at the right, such as buttons
 */
export function heading(title, ...beside) {
  const words = [title].flat().map((part) => (typeof part === "string" ? withLineEnds(part) : part));
  return h("header", { class: "page-head" }, h("h1", null, words), h("div", { class: "page-tools" }, beside));
}

/**
 * Make a section of a page.
 *
 * @param {string} title of the section
 * @param {...*} content nodes
 */
export function section(title, ...content) {
  return h("section", { class: "section", key: `section ${title}` }, h("h2", null, title), content);
}

/**
 * Make a section that is closed initially, for forms and rarely needed content.
 *
 * @param {string} title of the section
 * @param {...*} content nodes
 */
export function folded(title, ...content) {
  return h("details", { class: "section folded", key: `folded ${title}` }, h("summary", null, title), h("div", { class: "folded-content" }, content));
}

/**
 * Make a list of names and values. Rows whose value is null, undefined or false are omitted.
 *
 * @param {Array<[string, *, string?]>} rows name, value (text, number or node), and an explanation for hover
 */
export function properties(rows) {
  const shown = rows.filter(([, value]) => value !== null && value !== undefined && value !== false);
  return h(
    "dl",
    { class: "properties" },
    shown.map(([name, value, title]) => h("div", { key: name }, h("dt", { title: title ?? null }, name), h("dd", null, value))),
  );
}

/**
 * Make a list of the entries of an AMQP table, such as arguments, headers or definitions.
 *
 * @param {Object<string, *>} table table as in the API
 */
export function valueTable(table) {
  const entries = Object.entries(table ?? {});
  if (entries.length === 0) return h("span", { class: "muted" }, "none");
  return h("dl", { class: "values" }, entries.map(([name, value]) => h("div", { key: name }, h("dt", null, `${name}:`), h("dd", null, plain(value)))));
}

/**
 * Make the placeholder of an empty list, with advice on what to do next.
 *
 * @param {string} title name of what is missing
 * @param {...*} advice text or nodes
 */
export function emptyState(title, ...advice) {
  return h("div", { class: "empty" }, h("p", { class: "empty-title" }, title), h("p", null, advice));
}

/**
 * Make a row of large numbers.
 *
 * @param {Array<[string, *, string?]>} rows name, value, and an address to link the name to
 */
export function tiles(rows) {
  return h(
    "ul",
    { class: "tiles" },
    rows.map(([name, value, href]) =>
      h("li", { key: name }, h("span", { class: "tile-value" }, value), href ? h("a", { href }, name) : h("span", { class: "tile-name" }, name)),
    ),
  );
}

/** Make a group of buttons for a cell of a table. */
export function actions(...buttons) {
  return h("span", { class: "actions" }, buttons);
}

/**
 * Make a table of a few rows. For long lists of the API see table.js.
 *
 * @param {string} caption for screen readers
 * @param {Array<string|{label: string, numeric?: boolean, title?: string, wide?: boolean}>} headings `wide`: left out on
 *   narrow screens
 * @param {Array<{key: string, cells: Array}>} rows cells as in h(); `key` identifies the row
 */
export function plainTable(caption, headings, rows) {
  const columns = headings.map((heading) => (typeof heading === "string" ? { label: heading } : heading));
  const kind = (index) => (columns[index].numeric ? "numeric" : columns[index].wide ? "wide-only" : null);
  return h(
    "div",
    { class: "table-scroll plain", key: `table ${caption}`, tabindex: "0", role: "region", "aria-label": caption },
    h(
      "table",
      null,
      h("caption", { class: "visually-hidden" }, caption),
      h("thead", null, h("tr", null, columns.map(({ label, title }, index) => h("th", { scope: "col", class: kind(index), title: title ?? null }, label)))),
      h("tbody", null, rows.map(({ key, cells }) => h("tr", { key }, cells.map((cell, index) => h("td", { class: kind(index) }, cell))))),
    ),
  );
}

/** Make a table of a few objects with a name, with the columns of listColumns(). */
export function objectTable(caption, columns, objects) {
  const rows = objects.map((object) => ({ key: object.name, cells: columns.map(({ cell }) => cell(object)) }));
  return plainTable(caption, columns, rows);
}

/**
 * Make a select element with a label.
 *
 * @param {string} id of the select element
 * @param {string} label text before the element
 * @param {Array<[*, string]>} options pairs of value and text
 * @param {*} chosen initial value
 * @param {function(string): void} changed called with the new value
 * @returns {HTMLElement}
 */
export function choice(id, label, options, chosen, changed) {
  const made = options.map(([value, words]) => h("option", { value, selected: value === chosen }, words));
  const select = h("select", { id, on: { change: (event) => changed(event.target.value) } }, made);
  return h("span", { class: "control", own: true }, h("label", { for: id }, label), select);
}
