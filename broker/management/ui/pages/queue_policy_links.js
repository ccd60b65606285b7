/** Links from a queue to the policies that change its limits. */

import { address } from "../parts/address.js";
import { h } from "../parts/element.js";
import { exactNumber } from "../parts/format.js";
import { policyLink } from "./queue_features.js";

const LIMITS = ["max-length", "max-length-bytes"];

/**
 * Make advice on how to raise or set a limit of the queue, depending on its source.
 *
 * @param {import("../parts/user.js").User} user
 * @param {Object} explanation explanation of the queue, as in the API
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
    return "it is an argument, which policies can only lower; delete and redeclare the queue to raise it.";
  }
  const isOperator = source === "operator policy";
  const link = policyLink(vhost, isOperator ? operatorPolicy.name : policy.name, isOperator);
  const who = isOperator ? ", which requires the tag administrator" : "";
  const most = argument === null ? "" : `; the argument limits it to at most ${exactNumber(argument)}`;
  return [`change ${source} `, link, `${who}${most}.`];
}

function offer(explanation) {
  const words = " The form starts with the keys of the current policy, which the new one replaces: only one policy is in force at a time.";
  const note = explanation.policy === null ? null : h("span", { class: "muted" }, words);
  return h("p", null, h("a", { class: "button", href: newPolicy(explanation) }, "Add a policy for this queue"), note);
}

/** Return the address of the form for a policy that applies only to this queue. */
function newPolicy({ vhost, name, policy }) {
  const query = new URLSearchParams({ vhost, pattern: `^${escaped(name)}$`, "apply-to": "queues" });
  if (policy !== null) {
    query.set("priority", String(policy.priority + 1));
    query.set("definition", JSON.stringify(policy.definition));
  }
  return `${address("policies")}?${query}`;
}

/** Escape a name for use in a regular expression. */
function escaped(name) {
  return name.replace(/[\\^$.*+?()[\]{}|]/g, "\\$&");
}
