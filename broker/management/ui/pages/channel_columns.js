/** Table columns of channels, for the lists of channels. */

import { address } from "../parts/address.js";
import { badge } from "../parts/badge.js";
import { clientState } from "../parts/client_state.js";
import { h } from "../parts/element.js";
import { number } from "../parts/format.js";
import { rateColumn } from "../parts/rate_column.js";

/**
 * Return the columns.
 *
 * @param {{within?: "connection"}} [place] `within`: omits the columns that all channels of a connection have in common
 * @returns {import("../parts/table.js").Column[]}
 */
export function channelColumns({ within } = {}) {
  const isAlone = within !== "connection";
  return [
    isAlone ? { key: "vhost", label: "Virtual host", sort: "vhost", cell: ({ vhost }) => vhost } : null,
    isAlone
      ? { key: "name", label: "Channel", sort: "name", fixed: true, fields: ["name", "user_provided_name"], cell: named }
      : { key: "number", label: "Channel", sort: "number", fixed: true, fields: ["number", "name"], cell: ({ name, number: of }) => h("a", { href: address("channels", name) }, `(${of})`) },
    isAlone ? { key: "user", label: "User", sort: "user", cell: ({ user }) => user } : null,
    { key: "mode", label: "Mode", fields: ["confirm", "transactional"], cell: channelMode },
    { key: "state", label: "State", sort: "state", fields: ["state", "idle_since"], cell: clientState },
    count("messages_unconfirmed", "Unconfirmed", "Published but not yet confirmed"),
    { key: "prefetch", label: "Prefetch", title: "Maximum number of unacknowledged messages per consumer; global: of the whole channel", numeric: true, sort: "prefetch_count", fields: ["prefetch_count", "global_prefetch_count"], cell: (channel) => channelPrefetch(channel, "") },
    count("messages_unacknowledged", "Unacked", "Delivered but not yet acknowledged"),
    count("messages_uncommitted", "Uncommitted", "Published in the open transaction", { hidden: true }),
    count("acks_uncommitted", "Acks uncommitted", "Acknowledged in the open transaction", { hidden: true }),
    count("consumer_count", "Consumers", "Consumers on the channel"),
    rateColumn("publish", "Publish", "Messages published by the client"),
    rateColumn("confirm", "Confirm", "Messages confirmed to the client"),
    rateColumn("drop_unroutable", "Unroutable (drop)", "Messages that were not routed to a queue", { hidden: true }),
    rateColumn("return_unroutable", "Unroutable (return)", "Mandatory messages that were not routed to a queue and were returned", { hidden: true }),
    rateColumn("deliver_get", "Deliver / get", "Messages delivered to consumers or fetched"),
    rateColumn("redeliver", "Redeliver", "Messages redelivered", { hidden: true }),
    rateColumn("ack", "Ack", "Messages acknowledged"),
  ].filter((column) => column !== null);
}

function named({ name, user_provided_name: providedName }) {
  const link = h("a", { href: address("channels", name) }, name);
  return providedName === undefined ? link : [link, h("div", { class: "muted" }, providedName)];
}

function count(key, label, title, more = {}) {
  return { key, label, title, numeric: true, sort: key, cell: (channel) => number(channel[key]), ...more };
}

/** Make badges for confirm and transactional mode. @param {Object} channel channel object of the API */
export function channelMode({ confirm, transactional }) {
  return [
    confirm ? badge("C", "confirm: the broker confirms published messages") : null,
    transactional ? badge("T", "transactional: publishes and acknowledgements count once they are committed") : null,
  ];
}

/**
 * Return the prefetch limits of a channel as text.
 *
 * @param {Object} channel channel object of the API
 * @param {string} [suffix] text after the limit per consumer; empty in narrow columns
 */
export function channelPrefetch({ prefetch_count: each, global_prefetch_count: all }, suffix = " per consumer") {
  const parts = [each > 0 ? `${each}${suffix}` : null, all > 0 ? `${all} global` : null].filter((part) => part !== null);
  return parts.length > 0 ? parts.join(", ") : h("span", { class: "muted" }, "no limit");
}
