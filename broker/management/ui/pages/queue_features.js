/** What is special about a queue, in marks that explain themselves; and links to its policies. */

import { address } from "../parts/address.js";
import { badge } from "../parts/badge.js";
import { h } from "../parts/element.js";
import { plain } from "../parts/format.js";

/** Marks for what is in force: argument, mark, what it means. */
const MARKS = [
  ["x-max-length", "Lim", "it holds at most so many ready messages"],
  ["x-max-length-bytes", "Lim B", "its ready messages have at most so many bytes"],
  ["x-overflow", "Ovfl", "what happens at the limit"],
  ["x-dead-letter-exchange", "DLX", "exchange that gets what it drops"],
  ["x-dead-letter-routing-key", "DLK", "routing key of its dead letters"],
  ["x-message-ttl", "TTL", "milliseconds that a message may wait"],
  ["x-expires", "Exp", "it is deleted after so many milliseconds without use"],
  ["x-max-priority", "Pri", "messages of higher priority come first"],
];
const MARKED = new Set([...MARKS.map(([argument]) => argument), "x-queue-type", "x-queue-mode", "x-single-active-consumer"]);

/** Fields of a queue that features() looks at. */
export const FEATURE_FIELDS = ["durable", "auto_delete", "exclusive", "arguments", "effective_arguments"];

/**
 * The marks of a queue.
 *
 * @param {Object} queue as in the API
 * @returns {Array<HTMLElement|null>}
 */
export function features(queue) {
  const given = queue.arguments ?? {};
  const inForce = { ...given, ...queue.effective_arguments };
  const by = (argument) => source(argument, given, inForce);
  const others = Object.entries(given).filter(([name]) => !MARKED.has(name));
  const isLazy = inForce["x-queue-mode"] === "lazy";
  const isSingle = inForce["x-single-active-consumer"] === true;
  return [
    queue.durable ? badge("D", "durable: it is there after a restart") : null,
    queue.auto_delete ? badge("AD", "auto-delete: deleted when its last consumer goes") : null,
    queue.exclusive ? badge("Excl", "exclusive: only the connection that declared it may use it, and it goes with that") : null,
    isLazy ? badge("Lazy", `lazy: its ready messages are on disk only${by("x-queue-mode")}`) : null,
    ...MARKS.filter(([argument]) => argument in inForce).map(([argument, mark, meaning]) =>
      badge(mark, `${argument.slice(2)}: ${plain(inForce[argument])}${by(argument)} – ${meaning}`),
    ),
    isSingle ? badge("SAC", "single active consumer: one consumer at a time gets messages") : null,
    others.length > 0 ? badge("Args", others.map(([name, value]) => `${name}: ${plain(value)}`).join("\n")) : null,
  ];
}

function source(argument, given, inForce) {
  return argument in given && plain(given[argument]) === plain(inForce[argument]) ? "" : ", by policy";
}

/**
 * A link to a policy.
 *
 * @param {string} vhost of the queue
 * @param {string|null} name of the policy
 * @param {boolean} [isOperator] whether it is an operator policy
 * @returns {HTMLElement|null} null without one
 */
export function policyLink(vhost, name, isOperator = false) {
  return name ? h("a", { href: address(isOperator ? "operator-policies" : "policies", vhost, name), class: "room" }, name) : null;
}
