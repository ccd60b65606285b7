/** Labelled select element for toolbars. */

import { h } from "./element.js";

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
