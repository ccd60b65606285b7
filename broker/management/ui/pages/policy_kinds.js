/** The two kinds of policies, and how they differ. */

import { h } from "../parts/element.js";

const QUEUES = [
  { value: "queues", label: "Queues of all types" },
  { value: "classic_queues", label: "Classic queues" },
  { value: "quorum_queues", label: "Quorum queues" },
  { value: "streams", label: "Streams" },
];
const EXCHANGES = { value: "exchanges", label: "Exchanges" };

/**
 * A kind.
 *
 * @typedef {Object} Kind
 * @property {string} path first segment of its addresses, in the API and here
 * @property {string} name "policy"
 * @property {string} plural "policies"
 * @property {string} tag who may change them
 * @property {boolean} isOperator
 * @property {Array<{value: string, label: string}>} applyTo what they may be for, the default first
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
  // With all they are for queues just the same.
  applyTo: [...QUEUES, { value: "all", label: "All (queues, as operator policies go)" }],
};

/**
 * What a policy is for, in words.
 *
 * @param {Kind} kind
 * @param {Object} policy as in the API
 */
export function appliesTo(kind, policy) {
  const value = policy["apply-to"];
  return kind.applyTo.find((each) => each.value === value)?.label ?? value;
}

/** The pattern of a policy, for people. */
export function patternOf({ pattern }) {
  return pattern === "" ? h("span", { class: "muted" }, "(empty: all names)") : h("code", null, pattern);
}

/** "Policy" of "policy", for the beginning of a sentence. */
export function capital(text) {
  return text.charAt(0).toUpperCase() + text.slice(1);
}
