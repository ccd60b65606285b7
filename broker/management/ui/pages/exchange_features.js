/** What is special about an exchange, in marks that explain themselves; and links to what it names. */

import { address, exchangeAddress } from "../parts/address.js";
import { badge } from "../parts/badge.js";
import { h } from "../parts/element.js";
import { plain } from "../parts/format.js";

const ALTERNATE = "alternate-exchange";
/** What exchange types do, for people who do not have it in mind. */
const TYPES = {
  direct: "to the queues that are bound with the routing key of the message",
  fanout: "to all queues that are bound, whatever the routing key",
  topic: "to the queues whose binding pattern fits the routing key: * is one word, # any number of words",
  headers: "to the queues whose binding arguments fit the headers of the message",
};

/** Fields of an exchange that exchangeFeatures() looks at. */
export const FEATURE_FIELDS = ["durable", "auto_delete", "internal", "arguments"];

/**
 * The marks of an exchange.
 *
 * @param {Object} exchange as in the API
 * @returns {Array<HTMLElement|null>}
 */
export function exchangeFeatures(exchange) {
  const given = exchange.arguments ?? {};
  const others = Object.entries(given).filter(([name]) => name !== ALTERNATE);
  return [
    exchange.durable ? badge("D", "durable") : null,
    exchange.auto_delete ? badge("AD", "auto-delete: deleted when the last binding from it goes") : null,
    exchange.internal ? badge("I", "internal: takes messages from other exchanges only") : null,
    ALTERNATE in given ? badge("AE", `alternate-exchange: ${plain(given[ALTERNATE])}`) : null,
    others.length > 0 ? badge("Args", others.map(([name, value]) => `${name}: ${plain(value)}`).join("\n")) : null,
  ];
}

/** The type of an exchange, with what it does on hover. @param {string} type */
export function exchangeType(type) {
  return h("span", { title: type in TYPES ? `Messages go ${TYPES[type]}.` : null }, type);
}

/** A link to an exchange; the default one has no name of its own. */
export function exchangeLink(vhost, name) {
  return h("a", { href: exchangeAddress(vhost, name) }, name || "(AMQP default)");
}

/** A link to the policy of an exchange; null without one. @param {Object} exchange as in the API */
export function policyLink({ vhost, policy }) {
  return policy ? h("a", { href: address("policies", vhost, policy) }, policy) : null;
}

/** The alternate exchange that an exchange names in its arguments, as a link; null without one. */
export function alternateLink({ vhost, arguments: given = {} }) {
  return typeof given[ALTERNATE] === "string" ? exchangeLink(vhost, given[ALTERNATE]) : null;
}
