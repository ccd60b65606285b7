/** Badges for the properties of a queue, and links to its policies. */

import { address } from "../parts/address.js";
import { badge, fillBar } from "../parts/badge.js";
import { h } from "../parts/element.js";
import { exactNumber, nameText, plain, shortBytes } from "../parts/format.js";

/** Badges for effective settings: argument, badge text, explanation. */
const MARKS = [
  ["x-max-length", "Lim", "maximum number of messages"],
  ["x-max-length-bytes", "Lim B", "maximum number of bytes of messages"],
  ["x-length-counts", "Cnt", "what the limits count: ready messages, or all"],
  ["x-overflow", "Ovfl", "behaviour at the limit"],
  ["x-dead-letter-exchange", "DLX", "exchange that receives dropped messages"],
  ["x-dead-letter-routing-key", "DLK", "routing key of its dead letters"],
  ["x-message-ttl", "TTL", "time to live of messages in milliseconds"],
  ["x-expires", "Exp", "milliseconds without use after which it is deleted"],
  ["x-max-priority", "Pri", "messages with higher priority are delivered first"],
];
const MARKED = new Set([...MARKS.map(([argument]) => argument), "x-queue-type", "x-queue-mode", "x-single-active-consumer"]);

/**
 * Make the badges of a queue.
 *
 * @param {Object} queue queue object of the API
 * @returns {Array<HTMLElement|null>}
 */
export function features(queue) {
  const args = queue.arguments ?? {};
  const inForce = { ...args, ...queue.effective_arguments };
  const by = (argument) => source(argument, args, inForce);
  const others = Object.entries(args).filter(([name]) => !MARKED.has(name));
  const isLazy = inForce["x-queue-mode"] === "lazy";
  const isSingle = inForce["x-single-active-consumer"] === true;
  return [
    queue.durable ? badge("D", "durable: survives a restart") : null,
    queue.auto_delete ? badge("AD", "auto-delete: deleted when its last consumer is cancelled") : null,
    queue.exclusive ? badge("Excl", "exclusive: only the connection that declared it can use it; deleted with that connection") : null,
    isLazy ? badge("Lazy", `lazy: its ready messages are on disk only${by("x-queue-mode")}`) : null,
    ...MARKS.filter(([argument]) => argument in inForce).map(([argument, mark, meaning]) =>
      badge(mark, `${argument.slice(2)}: ${plain(inForce[argument])}${by(argument)} – ${meaning}`),
    ),
    isSingle ? badge("SAC", "single active consumer: one consumer at a time receives messages") : null,
    others.length > 0 ? badge("Args", others.map(([name, value]) => `${name}: ${plain(value)}`).join("\n")) : null,
  ];
}

function source(argument, args, inForce) {
  return argument in args && plain(args[argument]) === plain(inForce[argument]) ? "" : ", by policy";
}

/**
 * Make a link to a policy.
 *
 * @param {string} vhost virtual host of the queue
 * @param {string|null} name name of the policy
 * @param {boolean} [isOperator] whether it is an operator policy
 * @returns {HTMLElement|null} null without one
 */
export function policyLink(vhost, name, isOperator = false) {
  return name ? h("a", { href: address(isOperator ? "operator-policies" : "policies", vhost, name), class: "room" }, nameText(name)) : null;
}

/**
 * Make the bar for the nearest limit.
 *
 * @param {Object|null} fill fill of a queue, as in the API
 * @returns {HTMLElement}
 */
export function nearestFill(fill) {
  const isBytes = (fill?.bytes_percent ?? -1) > (fill?.messages_percent ?? -1);
  return isBytes ? bytesFill(fill) : messagesFill(fill);
}

/** Make the bar for the limit of messages; `data-amounts` has the numbers. */
export function messagesFill(fill) {
  return bar("Messages", fill, fill?.messages_counted, fill?.max_length, exactNumber, fill?.max_length_source);
}

/** Make the bar for the limit of bytes; `data-amounts` has the numbers. */
export function bytesFill(fill) {
  return bar("Bytes", fill, fill?.message_bytes_counted, fill?.max_length_bytes, shortBytes, fill?.max_length_bytes_source);
}

function bar(label, fill, used, limit, write, source) {
  if (limit === undefined || limit === null) return fillBar(0, null, write);
  const counted = fill.length_counts === "all" ? "; unacked messages count, too" : "";
  const made = fillBar(used, limit, write, { label, note: `limit by ${source}${counted}; when it is full, ${fill.at_limit}` });
  made.dataset.amounts = `${write(used)} of ${write(limit)}`;
  return made;
}
