/** The definition of a policy in words. */

import { h } from "../parts/element.js";
import { exactNumber, plain, shortBytes, span } from "../parts/format.js";
import { plainTable } from "../parts/layout.js";

const WORDS = { bytes: shortBytes, milliseconds: (value) => span(value / 1000) };
/** Below that, the number itself says it as well. */
const WORDS_FROM = 1000;

/**
 * A value with its unit: "1,048,576 bytes (1 MiB)".
 *
 * @param {*} value of a key
 * @param {Object} [key] as of `GET /api/policy-keys`
 */
export function valueInWords(value, key) {
  if (typeof value !== "number" || !key?.unit) return plain(value);
  return `${exactNumber(value)} ${key.unit}${inWords(value, key)}`;
}

function inWords(value, key) {
  return key?.unit in WORDS && value >= WORDS_FROM ? ` (${WORDS[key.unit](value)})` : "";
}

/**
 * A value without its unit, large ones also in words: "86400000 (1d)".
 *
 * @param {*} value of a key
 * @param {Object} [key] as of `GET /api/policy-keys`
 */
export function briefly(value, key) {
  return plain(value) + inWords(value, key);
}

/**
 * A definition as it stands in lists: a line for each key.
 *
 * @param {Object<string, *>} definition
 * @param {Map<string, Object>} keys by name
 */
export function definitionList(definition, keys) {
  const rows = Object.entries(definition).map(([name, value]) =>
    h("div", { key: name, title: keys.get(name)?.summary ?? null }, h("dt", null, `${name}:`), h("dd", { title: valueInWords(value, keys.get(name)) }, briefly(value, keys.get(name)))),
  );
  return h("dl", { class: "values" }, rows);
}

/**
 * A definition explained: value, meaning, and what counts beside the queue's arguments.
 *
 * @param {Object<string, *>} definition
 * @param {Map<string, Object>} keys by name
 * @param {boolean} isOperator whether it is that of an operator policy
 */
export function definitionTable(definition, keys, isOperator) {
  const rows = Object.entries(definition).map(([name, value]) => {
    const key = keys.get(name);
    return { key: name, cells: [h("code", null, name), valueInWords(value, key), h("span", { class: "sentence" }, key?.summary ?? "A key that this broker does not know."), key ? meeting(key, isOperator) : null] };
  });
  return plainTable("Definition", ["Key", "Value", "What it does", isOperator ? "Beside a policy" : "Beside an argument of the queue"], rows);
}

function meeting(key, isOperator) {
  if (isOperator) return key.operator_merge;
  const merges = Object.entries(key.argument_merge);
  const different = new Set(merges.map(([, merge]) => merge));
  if (different.size <= 1) return [...different][0] ?? null;
  return merges.map(([type, merge]) => h("div", { key: type }, `${type}: ${merge}`));
}
