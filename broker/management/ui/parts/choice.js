/** A choice of one among few, with its label, as it stands in bars. */

import { h } from "./element.js";

/**
 * Make a choice.
 *
 * @param {string} id of the select element
 * @param {string} label before it
 * @param {Array<[*, string]>} options value and words
 * @param {*} chosen value at first
 * @param {function(string): void} changed called with the value that is chosen
 * @returns {HTMLElement}
 */
export function choice(id, label, options, chosen, changed) {
  const made = options.map(([value, words]) => h("option", { value, selected: value === chosen }, words));
  const select = h("select", { id, on: { change: (event) => changed(event.target.value) } }, made);
  return h("span", { class: "control", own: true }, h("label", { for: id }, label), select);
}
