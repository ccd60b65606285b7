/** Client properties of a connection. */

import { h } from "../parts/element.js";
import { plain } from "../parts/format.js";
import { emptyState, properties } from "../parts/layout.js";

/** Properties that are shown first; others follow in the client's order. */
const FIRST = ["connection_name", "product", "version", "platform"];

/**
 * Make the list of the client properties of a connection, with its capabilities.
 *
 * @param {Object<string, *>} [table] as in the API
 * @returns {HTMLElement}
 */
export function clientProperties(table = {}) {
  const { capabilities, ...others } = table;
  const names = [...FIRST.filter((name) => name in others), ...Object.keys(others).filter((name) => !FIRST.includes(name))];
  const rows = names.map((name) => [name.replaceAll("_", " "), plain(others[name]), name]);
  if (capabilities !== undefined) rows.push(["capabilities", capabilityList(capabilities), "Protocol extensions that the client supports"]);
  return rows.length === 0 ? emptyState("The client has sent no properties.") : properties(rows);
}

function capabilityList(capabilities) {
  if (capabilities === null || typeof capabilities !== "object" || Array.isArray(capabilities)) return plain(capabilities);
  const entries = Object.entries(capabilities);
  if (entries.length === 0) return h("span", { class: "muted" }, "none");
  return h("ul", { class: "capabilities" }, entries.map(([name, value]) => h("li", { key: name }, ...capability(name, value))));
}

function capability(name, value) {
  if (value === true) return [h("span", { class: "good", "aria-hidden": "true" }, "✓\u00a0"), name];
  if (value === false) return [h("span", { class: "muted", "aria-hidden": "true" }, "✗\u00a0"), h("span", { class: "muted" }, `${name}: no`)];
  return [`${name}: ${plain(value)}`];
}
