/** The list of exchanges. */

import { exchangeAddress, address } from "../parts/address.js";
import { badge } from "../parts/badge.js";
import { h, patch } from "../parts/element.js";
import { plain, rate } from "../parts/format.js";
import { emptyState, heading } from "../parts/layout.js";
import { Table } from "../parts/table.js";

const COLUMNS = [
  { key: "vhost", label: "Virtual host", sort: "vhost", cell: (exchange) => exchange.vhost },
  {
    key: "name",
    label: "Name",
    sort: "name",
    fields: ["name", "vhost"],
    fixed: true,
    cell: ({ vhost, name }) => h("a", { href: exchangeAddress(vhost, name) }, name || "(AMQP default)"),
  },
  { key: "type", label: "Type", sort: "type", cell: (exchange) => exchange.type },
  { key: "features", label: "Features", fields: ["durable", "auto_delete", "internal", "arguments"], cell: features },
  { key: "policy", label: "Policy", sort: "policy", fields: ["policy", "vhost"], cell: policyLink },
  rateColumn("publish_in", "Rate in", "Messages published to the exchange"),
  rateColumn("publish_out", "Rate out", "Messages that the exchange has routed, once for each target"),
];

function rateColumn(figure, label, title) {
  const path = `message_stats.${figure}_details.rate`;
  return { key: figure, label, title, numeric: true, sort: path, fields: [path], cell: ({ message_stats: stats }) => rate(stats?.[`${figure}_details`]?.rate ?? 0) };
}

function features(exchange) {
  const given = Object.entries(exchange.arguments ?? {}).map(([name, value]) => `${name}: ${plain(value)}`);
  return [
    exchange.durable ? badge("D", "durable") : null,
    exchange.auto_delete ? badge("AD", "auto-delete: deleted when the last binding to it goes") : null,
    exchange.internal ? badge("I", "internal: takes messages from other exchanges only") : null,
    exchange.arguments?.["alternate-exchange"] ? badge("AE", `alternate-exchange: ${exchange.arguments["alternate-exchange"]}`) : null,
    given.length > 0 ? badge("Args", given.join("\n")) : null,
  ];
}

function policyLink({ vhost, policy }) {
  return policy ? h("a", { href: address("policies", vhost, policy) }, policy) : null;
}

function nothing() {
  return emptyState("No exchanges are to be seen here.", "Choose another virtual host above, or ask an administrator for permissions in this one.");
}

export default {
  title: () => "Exchanges",

  mount(context) {
    const table = new Table({
      id: "exchanges",
      columns: COLUMNS,
      needs: ["name", "vhost"],
      rowKey: ({ vhost, name }) => JSON.stringify([vhost, name]),
      load: (query) => context.api.get(context.vhost === "" ? ["exchanges"] : ["exchanges", context.vhost], query),
      empty: nothing,
    });
    patch(context.root, heading("Exchanges"), table.element);
    return () => table.refresh();
  },
};
