/** Consumers of a queue. */

import { address } from "../parts/address.js";
import { badge } from "../parts/badge.js";
import { h } from "../parts/element.js";
import { exactNumber, yesNo } from "../parts/format.js";
import { emptyState, plainTable, valueTable } from "../parts/layout.js";

const SHOWN = 200;
const HEADINGS = [
  "Channel",
  "Consumer tag",
  { label: "Acknowledges", title: "Whether it acknowledges messages, or they count as acknowledged when they are sent" },
  { label: "Prefetch", numeric: true, title: "Maximum number of unacknowledged messages" },
  { label: "Active", title: "Whether it receives messages, or waits to become the active consumer" },
  "Arguments",
];

/**
 * Make the table of consumers.
 *
 * @param {Object[]} consumers `consumer_details` of a queue
 * @returns {Array<HTMLElement|null>}
 */
export function consumersTable(consumers) {
  if (consumers.length === 0) {
    const advice = "Messages wait until an application consumes them. You can get or move them below.";
    return [emptyState("This queue has no consumers.", advice)];
  }
  const rows = consumers.slice(0, SHOWN).map((consumer) => ({
    key: JSON.stringify([consumer.channel_details.name, consumer.consumer_tag]),
    cells: cells(consumer),
  }));
  const isCut = consumers.length > SHOWN;
  const more = isCut ? h("p", { class: "muted" }, `The first ${SHOWN} of ${exactNumber(consumers.length)}.`) : null;
  return [plainTable("Consumers", HEADINGS, rows), more];
}

function cells(consumer) {
  const { channel_details: channel, consumer_tag: tag, ack_required: acks, prefetch_count: prefetch } = consumer;
  const { active, exclusive, arguments: args } = consumer;
  return [
    h("a", { href: address("channels", channel.name) }, channel.name),
    [tag, " ", exclusive ? badge("Excl", "exclusive: no other consumer is let in") : null],
    acks ? "yes" : h("span", { title: "Messages are removed when they are sent" }, "no, automatic"),
    prefetch === 0 ? h("span", { title: "Any number of messages may be unacknowledged" }, "no limit") : exactNumber(prefetch),
    active ? "yes" : h("span", { class: "muted" }, yesNo(active)),
    valueTable(args),
  ];
}
