/** Badges for the properties of an exchange, and links to related objects. */

import { address, exchangeAddress } from "../parts/address.js";
import { badge } from "../parts/badge.js";
import { h } from "../parts/element.js";
import { nameText, plain } from "../parts/format.js";

const ALTERNATE = "alternate-exchange";
/** Explanations of the exchange types. */
const TYPES = {
  direct: "to the queues that are bound with the message's routing key",
  fanout: "to all queues that are bound, whatever the routing key",
  topic: "to the queues whose binding pattern matches the routing key: * is one word, # any number of words",
  headers: "to the queues whose binding arguments match the message's headers",
  "x-delayed-message": "where the type inside it (x-delayed-type) routes them, after the milliseconds in their header x-delay",
  "x-message-deduplication": "to all queues that are bound, unless the value of their header x-deduplication-header is remembered",
};

/**
 * Make the badges of an exchange.
 *
 * @param {Object} exchange exchange object of the API
 * @returns {Array<HTMLElement|null>}
 */
export function exchangeFeatures(exchange) {
  const args = exchange.arguments ?? {};
  const others = Object.entries(args).filter(([name]) => name !== ALTERNATE);
  return [
    exchange.durable ? badge("D", "durable") : null,
    exchange.auto_delete ? badge("AD", "auto-delete: deleted when the last binding from it is removed") : null,
    exchange.internal ? badge("I", "internal: accepts messages from other exchanges only") : null,
    ALTERNATE in args ? badge("AE", `alternate-exchange: ${plain(args[ALTERNATE])}`) : null,
    others.length > 0 ? badge("Args", others.map(([name, value]) => `${name}: ${plain(value)}`).join("\n")) : null,
  ];
}

/** Make an exchange type with its explanation on hover. @param {string} type */
export function exchangeType(type) {
  return h("span", { title: type in TYPES ? `Messages go ${TYPES[type]}.` : null }, type);
}

/** Make a link to an exchange. The default one, whose name is empty, is shown as (AMQP default). */
export function exchangeLink(vhost, name) {
  return h("a", { href: exchangeAddress(vhost, name) }, nameText(name || "(AMQP default)"));
}

/** Make a link to the policy of an exchange; null without one. @param {Object} exchange exchange object of the API */
export function policyLink({ vhost, policy }) {
  return policy ? h("a", { href: address("policies", vhost, policy) }, nameText(policy)) : null;
}

/** Make a link to the alternate exchange in the arguments; null without one. */
export function alternateLink({ vhost, arguments: args = {} }) {
  return typeof args[ALTERNATE] === "string" ? exchangeLink(vhost, args[ALTERNATE]) : null;
}
