/** From a queue to the policy that would change it. */

import { address } from "../parts/address.js";
import { h } from "../parts/element.js";
import { exactNumber } from "../parts/format.js";
import { policyLink } from "./queue_features.js";

const LIMITS = ["max-length", "max-length-bytes"];

/**
 * What to do to raise (or set) a limit of the queue, by who has set it.
 *
 * @param {import("../parts/user.js").User} user
 * @param {Object} explanation of the queue, as in the API
 * @returns {Array<HTMLElement|null>}
 */
export function limitAdvice(user, explanation) {
  const limits = explanation.settings.filter(({ key, in_force: value }) => LIMITS.includes(key) && value !== null);
  const lines = limits.map((limit) => h("li", { key: limit.key }, `To raise ${limit.key}: `, advice(limit, explanation)));
  const list = lines.length > 0 ? h("ul", { class: "bullets beside" }, lines) : null;
  return [list, user.may("policymaker") ? offer(explanation) : null];
}

function advice({ source, argument }, { vhost, policy, operator_policy: operatorPolicy }) {
  if (source === "argument") {
    return "it is an argument, which policies can make smaller, not larger; the queue has to be declared anew.";
  }
  const isOperator = source === "operator policy";
  const link = policyLink(vhost, isOperator ? operatorPolicy.name : policy.name, isOperator);
  const who = isOperator ? ", as only administrators can" : "";
  const most = argument === null ? "" : `; the argument keeps it at ${exactNumber(argument)} at the most`;
  return [`change ${source} `, link, `${who}${most}.`];
}

function offer(explanation) {
  const words = " It starts with the keys of the one in force, which it replaces: only one policy at a time counts.";
  const note = explanation.policy === null ? null : h("span", { class: "muted" }, words);
  return h("p", null, h("a", { class: "button", href: newPolicy(explanation) }, "Add a policy for this queue"), note);
}

/** The address of the form for a policy that is in force on this queue alone. */
function newPolicy({ vhost, name, policy }) {
  const query = new URLSearchParams({ vhost, pattern: `^${escaped(name)}$`, "apply-to": "queues" });
  if (policy !== null) {
    query.set("priority", String(policy.priority + 1));
    query.set("definition", JSON.stringify(policy.definition));
  }
  return `${address("policies")}?${query}`;
}

/** A name as a regular expression that fits nothing else. */
function escaped(name) {
  return name.replace(/[\\^$.*+?()[\]{}|]/g, "\\$&");
}
