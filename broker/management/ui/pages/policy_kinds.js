/** The two kinds of policies: user policies and operator policies. */

import { h } from "../parts/element.js";

const QUEUES = [
  { value: "queues", label: "Queues of all types" },
  { value: "classic_queues", label: "Classic queues" },
  { value: "quorum_queues", label: "Quorum queues" },
  { value: "streams", label: "Streams" },
];
const EXCHANGES = { value: "exchanges", label: "Exchanges" };

/**
 * Kind of policies.
 *
 * @typedef {Object} Kind
 * @property {string} path first segment of addresses, in the API and the UI
 * @property {string} name "policy"
 * @property {string} plural "policies"
 * @property {string} tag tag that is required to change them
 * @property {boolean} isOperator
 * @property {Array<{value: string, label: string}>} applyTo kinds of objects they can apply to, the default first
 */

/** @type {Kind} */
export const POLICY = {
  path: "policies",
  name: "policy",
  plural: "policies",
  tag: "policymaker",
  isOperator: false,
  applyTo: [{ value: "all", label: "Exchanges and queues" }, ...QUEUES, EXCHANGES],
};

/** @type {Kind} */
export const OPERATOR_POLICY = {
  path: "operator-policies",
  name: "operator policy",
  plural: "operator policies",
  tag: "administrator",
  isOperator: true,
  // Operator policies apply only to queues, also with `all`.
  applyTo: [...QUEUES, { value: "all", label: "All (operator policies apply only to queues)" }],
};

/**
 * Return the kinds of objects that a policy applies to, as text.
 *
 * @param {Kind} kind
 * @param {Object} policy policy object of the API
 */
export function appliesTo(kind, policy) {
  const value = policy["apply-to"];
  return kind.applyTo.find((each) => each.value === value)?.label ?? value;
}

/** Make the pattern of a policy for display. */
export function patternOf({ pattern }) {
  return pattern === "" ? h("span", { class: "muted" }, "(empty: all names)") : h("code", null, pattern);
}

/** Capitalize the first letter. */
export function capital(text) {
  return text.charAt(0).toUpperCase() + text.slice(1);
}
