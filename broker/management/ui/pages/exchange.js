/** Page of an exchange. */

import { address } from "../parts/address.js";
import { Chart } from "../parts/chart.js";
import { confirmAction } from "../parts/dialog.js";
import { h, patch } from "../parts/element.js";
import { Form } from "../parts/form.js";
import { bytes, number, shortRate } from "../parts/format.js";
import { folded, heading, properties, section, valueTable } from "../parts/layout.js";
import { PublishForm } from "../parts/publish_form.js";
import { RangeChoice, rates } from "../parts/series.js";
import { DelayedMessages } from "./delayed_messages.js";
import { BindingForm, bindingsFrom, bindingsTo } from "./exchange_bindings.js";
import { alternateLink, exchangeFeatures, exchangeType, policyLink } from "./exchange_features.js";

const RATES = [
  ["publish_in", "In", "published to the exchange"],
  ["publish_out", "Out", "routed by the exchange, once for each target"],
];
const LOSSES = [
  ["drop_unroutable", "Dropped", "dropped: no queue took them"],
  ["return_unroutable", "Returned", "returned to the publisher: no queue took them, and they were mandatory"],
];
const DELAYED = "x-delayed-message";
const DEFAULT = "amq.default";

export default {
  title: ({ name }) => `Exchange ${name}`,

  mount(context) {
    const { vhost } = context.params;
    // The default exchange has a name in addresses, but not in objects of the API.
    const name = context.params.name === DEFAULT ? "" : context.params.name;
    const range = new RangeChoice(() => context.refresh());
    const charts = {
      rates: new Chart({ title: "Message rates", format: shortRate, empty: "No message has been published to this exchange yet." }),
      losses: new Chart({ title: "Unroutable", format: shortRate }),
    };
    patch(context.root, heading(`Exchange ${context.params.name}`));
    const publish = new PublishForm(context, { vhost, exchange: name });
    const parts = { charts, range, publish: folded("Publish a message", publish.element), ...(name === "" ? {} : named(context, name)) };

    return async () => {
      const [exchange] = await Promise.all([
        context.api.get(["exchanges", vhost, name || DEFAULT], range.query),
        parts.to?.refresh(),
        parts.from?.refresh(),
      ]);
      draw(charts, exchange);
      parts.binding?.describe(exchange.type === DELAYED ? exchange.arguments["x-delayed-type"] : exchange.type);
      if (exchange.type === DELAYED) await (parts.delayed ??= new DelayedMessages(context, "exchange", name)).refresh();
      show(context, exchange, parts);
    };
  },
};

/** Make the parts that the default exchange does not have, because its bindings are implicit and it cannot be deleted. */
function named(context, name) {
  const binding = new BindingForm(context, name);
  return {
    to: bindingsTo(context, name),
    from: bindingsFrom(context, name),
    binding,
    bind: folded("Add a binding", binding.element),
    remove: name.startsWith("amq.") ? null : section("Delete this exchange", deleteForm(context, name).element),
  };
}

function draw(charts, { message_stats: stats = {}, loss_stats: losses = {} }) {
  charts.rates.update(RATES.map(([figure, label, title]) => ({ label, title, points: rates(stats[`${figure}_details`]) })));
  charts.losses.update(LOSSES.map(([figure, label, title], index) => ({ label, title, colour: 8 - index * 6, points: rates(losses[`${figure}_details`]) })));
}

function show({ root }, exchange, { charts, range, publish, to, from, bind, remove, delayed }) {
  const { name, vhost, loss_stats: losses } = exchange;
  patch(
    root,
    heading([`Exchange ${name || "(AMQP default)"} `, h("small", null, `in virtual host ${vhost}`)], range.element),
    h("div", { class: "charts" }, charts.rates.element, losses ? charts.losses.element : null, details(exchange)),
    delayed ? section("Delayed messages", delayed.element) : null,
    from ? section("Bindings from this exchange", from.element) : implicit(),
    bind,
    to ? section("Bindings to this exchange", to.element) : null,
    publish,
    remove,
  );
}

function implicit() {
  return section("Bindings", h("p", null, "Every queue of the virtual host is bound to the default exchange with its name as routing key. This cannot be changed."));
}

function details(exchange) {
  const { message_stats: stats = {}, loss_stats: losses = {}, arguments: args } = exchange;
  const marks = exchangeFeatures(exchange).filter((each) => each !== null);
  return properties([
    ["Type", exchangeType(exchange.type)],
    ["Features", marks.length > 0 ? marks : null],
    ["Arguments", valueTable(args)],
    ["Alternate exchange", alternateLink(exchange), "Receives messages that this exchange cannot route"],
    ["Policy", policyLink(exchange) ?? h("span", { class: "muted" }, "none")],
    ["Published in", number(stats.publish_in ?? 0), "Messages published to the exchange since the broker's start"],
    ["Routed out", number(stats.publish_out ?? 0), "Counted once per target, since the broker's start"],
    ...(exchange.type === DELAYED ? delays(exchange) : []),
    ...(exchange.cache_info ? duplicates(exchange) : []),
    ["Unroutable, dropped", lost(losses.drop_unroutable), "Messages that were not routed to a queue"],
    ["Unroutable, returned", lost(losses.return_unroutable), "Mandatory messages that were not routed to a queue and were returned to the publisher"],
  ]);
}

function delays({ messages_delayed: count, message_bytes_delayed: size, loss_stats: losses = {} }) {
  return [
    ["Delayed", [number(count), ", ", bytes(size)], "Messages that wait until they are due"],
    ["Delayed, refused", lost(losses.refuse), "Messages with a delay that were refused, because too many waited"],
  ];
}

function duplicates({ deduplicated: count, cache_info: { entries, size } }) {
  return [
    ["Duplicates dropped", number(count), "Messages whose x-deduplication-header had a remembered value, since the broker's start; they are not lost"],
    ["Remembered values", [number(entries), " of ", number(size)], "A new value takes the place of the oldest one when there are this many"],
  ];
}

function lost(count = 0) {
  return count > 0 ? h("strong", { class: "bad" }, number(count)) : number(0);
}

/**
 * Make the form that deletes the exchange of the page.
 *
 * @param {Object} context context of the page
 * @param {string} name name of the exchange
 * @returns {Form}
 */
export function deleteForm(context, name) {
  return new Form({
    fields: [{ name: "ifUnused", label: "Only if unused", kind: "checkbox", hint: "Unused means that it has no bindings to queues or other exchanges." }],
    submit: "Delete …",
    keep: true,
    action: ({ ifUnused }) => remove(context, name, ifUnused),
  });
}

async function remove({ api, params, navigate, notify }, name, ifUnused) {
  const isDone = await confirmAction({
    title: "Delete exchange",
    name,
    text: "Its bindings are deleted. Publishing to it will fail.",
    verb: "Delete",
    action: () => api.delete(["exchanges", params.vhost, name], { "if-unused": ifUnused ? "true" : null }),
  });
  if (!isDone) return;
  notify(`Exchange ${name} has been deleted.`);
  navigate(address("exchanges"));
}
