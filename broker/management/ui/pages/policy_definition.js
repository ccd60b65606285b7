/** Shows definitions of policies with units and explanations. */

import { h } from "../parts/element.js";
import { exactNumber, plain, shortBytes, span } from "../parts/format.js";
import { plainTable } from "../parts/layout.js";

const WORDS = { bytes: shortBytes, milliseconds: (value) => span(value / 1000) };
/** Smaller values are not repeated in larger units. */
const WORDS_FROM = 1000;

/**
 * Return a value with its unit: "1,048,576 bytes (1 MiB)".
 *
 * @param {*} value value of the key
 * @param {Object} [key] description of the key, as in `GET /api/policy-keys`
 */
export function valueWithUnit(value, key) {
  if (typeof value !== "number" || !key?.unit) return plain(value);
  return `${exactNumber(value)} ${key.unit}${inWords(value, key)}`;
}

function inWords(value, key) {
  return key?.unit in WORDS && value >= WORDS_FROM ? ` (${WORDS[key.unit](value)})` : "";
}

/**
 * Return a value without its unit, a large one also in larger units: "86400000 (1d)".
 *
 * @param {*} value value of the key
 * @param {Object} [key] description of the key, as in `GET /api/policy-keys`
 */
export function shortValue(value, key) {
  return plain(value) + inWords(value, key);
}

/**
 * Make the short form of a definition for lists, with a line per key.
 *
 * @param {Object<string, *>} definition
 * @param {Map<string, Object>} keys by name
 */
export function definitionList(definition, keys) {
  const rows = Object.entries(definition).map(([name, value]) =>
    h("div", { key: name, title: keys.get(name)?.summary ?? null }, h("dt", null, `${name}:`), h("dd", { title: valueWithUnit(value, keys.get(name)) }, shortValue(value, keys.get(name)))),
  );
  return h("dl", { class: "values" }, rows);
}

/**
 * Make the table of a definition: values, explanations, and how they combine with queue arguments.
 *
 * @param {Object<string, *>} definition
 * @param {Map<string, Object>} keys by name
 * @param {boolean} isOperator whether it belongs to an operator policy
 */
export function definitionTable(definition, keys, isOperator) {
  const rows = Object.entries(definition).map(([name, value]) => {
    const key = keys.get(name);
    return { key: name, cells: [h("code", null, name), valueWithUnit(value, key), h("span", { class: "sentence" }, key?.summary ?? "This broker does not know this key."), key ? mergeRule(key, isOperator) : null] };
  });
  return plainTable("Definition", ["Key", "Value", "What it does", isOperator ? "Together with a policy" : "Together with an argument of the queue"], rows);
}

function mergeRule(key, isOperator) {
  if (isOperator) return key.operator_merge;
  const merges = Object.entries(key.argument_merge);
  const different = new Set(merges.map(([, merge]) => merge));
  if (different.size <= 1) return [...different][0] ?? null;
  return merges.map(([type, merge]) => h("div", { key: type }, `${type}: ${merge}`));
}
