/** Page of a channel. */

import { address, exchangeAddress } from "../parts/address.js";
import { badge, clientState } from "../parts/badge.js";
import { Chart } from "../parts/chart.js";
import { h, patch } from "../parts/element.js";
import { number, rate, shortRate, yesNo } from "../parts/format.js";
import { emptyState, heading, plainTable, properties, section, valueTable } from "../parts/layout.js";
import { RangeChoice, rates } from "../parts/series.js";
import { channelMode, channelPrefetch } from "./channels.js";

/** The first four rates are always drawn, the others once they are not zero. */
const RATES = [
  ["publish", "Publish", "published by the client"],
  ["confirm", "Confirm", "confirmed to the client"],
  ["deliver_get", "Deliver", "delivered to consumers, or fetched"],
  ["ack", "Ack", "acknowledged by the client"],
  ["redeliver", "Redeliver", "delivered once more"],
  ["return_unroutable", "Return", "returned: no queue was found for a mandatory message"],
  ["drop_unroutable", "Drop", "dropped: no queue was found"],
  ["get_empty", "Get (empty)", "fetched from a queue that was empty"],
];
const ALWAYS = 4;

export default {
  title: ({ name }) => `Channel ${name}`,

  mount(context) {
    const { api, params, root } = context;
    const range = new RangeChoice(() => context.refresh());
    patch(root, heading(["Channel ", params.name]));
    const chart = new Chart({ title: "Message rates", format: shortRate, empty: "The channel has neither published nor consumed yet." });

    return async () => {
      const channel = await api.get(["channels", params.name], range.query);
      const stats = channel.message_stats ?? {};
      const drawn = RATES.map(([name, label, title], index) => ({ label, title, colour: index + 1, points: rates(stats[`${name}_details`]), isDrawn: index < ALWAYS || stats[name] > 0 }));
      chart.update(drawn.filter(({ isDrawn }) => isDrawn));
      patch(
        root,
        heading(["Channel ", channel.name, " ", h("small", null, channel.user_provided_name)], range.element),
        h("div", { class: "charts" }, chart.element, details(channel)),
        section("Consumers", consumers(channel.consumer_details)),
        perObject("Deliveries by queue", "Queue", channel.deliveries, "queue", "deliver_get"),
        perObject("Publishes by exchange", "Exchange", channel.publishes, "exchange", "publish"),
      );
    };
  },
};

function details(channel) {
  const { connection_details: connection, message_stats: stats = {} } = channel;
  const isTransactional = channel.transactional;
  const mode = channelMode(channel).filter((each) => each !== null);
  return properties([
    ["Connection", h("a", { href: address("connections", connection.name) }, connection.name)],
    ["Virtual host", channel.vhost],
    ["User", channel.user],
    ["State", clientState(channel)],
    ["Mode", mode.length > 0 ? mode : "neither confirms nor transactions"],
    ["Prefetch", channelPrefetch(channel)],
    ["Unconfirmed", number(channel.messages_unconfirmed), "Published but not yet confirmed"],
    ["Unacked", number(channel.messages_unacknowledged), "Delivered but not yet acknowledged"],
    ["Uncommitted", isTransactional ? number(channel.messages_uncommitted) : null, "Published in the open transaction"],
    ["Acks uncommitted", isTransactional ? number(channel.acks_uncommitted) : null, "Acknowledged in the open transaction"],
    ["Published", stats.publish > 0 ? number(stats.publish) : null],
    ["Delivered", stats.deliver_get > 0 ? number(stats.deliver_get) : null],
    ["Acknowledged", stats.ack > 0 ? number(stats.ack) : null],
  ]);
}

function consumers(rows) {
  if (rows.length === 0) return emptyState("The channel has no consumer.", "It may still publish, or fetch single messages.");
  return plainTable(
    "Consumers",
    ["Consumer tag", "Queue", "Ack required", "Exclusive", { label: "Prefetch", numeric: true }, "Activity", "Arguments"],
    rows.map((consumer) => ({
      key: consumer.consumer_tag,
      cells: [
        consumer.consumer_tag,
        h("a", { href: address("queues", consumer.queue.vhost, consumer.queue.name) }, consumer.queue.name),
        yesNo(consumer.ack_required),
        yesNo(consumer.exclusive),
        consumer.prefetch_count > 0 ? number(consumer.prefetch_count) : h("span", { class: "muted" }, "no limit"),
        activity(consumer),
        valueTable(consumer.arguments),
      ],
    })),
  );
}

function activity({ active, activity_status: status }) {
  if (status === "single_active") return badge("active", "the one consumer that a single active consumer queue delivers to", "good");
  if (status === "waiting") return badge("waiting", "takes over when the active consumer goes", "warning");
  return active ? badge("active", "gets messages", "good") : badge(status ?? "inactive", "gets no messages");
}

/** Table of rates per queue or exchange, which the API may omit. */
function perObject(title, label, rows, kind, figure) {
  if (!Array.isArray(rows) || rows.length === 0) return null;
  return section(
    title,
    plainTable(
      title,
      [label, { label: "Rate", numeric: true }],
      rows.map(({ [kind]: { vhost, name }, stats = {} }) => ({
        key: JSON.stringify([vhost, name]),
        cells: [
          h("a", { href: kind === "exchange" ? exchangeAddress(vhost, name) : address("queues", vhost, name) }, name || "(AMQP default)"),
          rate(stats[`${figure}_details`]?.rate ?? 0),
        ],
      })),
    ),
  );
}
