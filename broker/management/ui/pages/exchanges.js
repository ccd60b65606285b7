/** Page with the list of exchanges. */

import { h, patch } from "../parts/element.js";
import { number } from "../parts/format.js";
import { emptyState, heading, valueTable } from "../parts/layout.js";
import { rateColumn } from "../parts/rate_column.js";
import { Table } from "../parts/table.js";
import { ExchangeDeclaration } from "./exchange_declaration.js";
import { FEATURE_FIELDS, exchangeFeatures, exchangeLink, exchangeType, policyLink } from "./exchange_features.js";

const COLUMNS = [
  { key: "vhost", label: "Virtual host", sort: "vhost", cell: (exchange) => exchange.vhost },
  { key: "name", label: "Name", sort: "name", fields: ["name", "vhost"], fixed: true, cell: ({ vhost, name }) => exchangeLink(vhost, name) },
  { key: "type", label: "Type", sort: "type", cell: ({ type }) => exchangeType(type) },
  { key: "features", label: "Features", fields: FEATURE_FIELDS, cell: exchangeFeatures },
  { key: "arguments", label: "Arguments", hidden: true, cell: (exchange) => valueTable(exchange.arguments) },
  { key: "policy", label: "Policy", sort: "policy", fields: ["policy", "vhost"], cell: policyLink },
  rateColumn("publish_in", "Rate in", "Messages published to the exchange"),
  rateColumn("publish_out", "Rate out", "Messages routed by the exchange, counted once per target"),
  countColumn("message_stats.publish_in", "Total in", "Messages published to the exchange since the broker's start", true),
  countColumn("message_stats.publish_out", "Total out", "Messages routed by the exchange since the broker's start, counted once per target", true),
  countColumn("loss_stats.lost", "Lost", "Messages that were not routed to a queue and not returned to the publisher, or delayed ones that were refused, since losses are counted", false, lost),
  { key: "messages_delayed", label: "Delayed", title: "Messages that wait until they are due, in exchanges of type x-delayed-message", numeric: true, hidden: true, sort: "messages_delayed", cell: ({ messages_delayed: count }) => (count === undefined ? null : number(count)) },
];

function countColumn(path, label, title, hidden = false, show = number) {
  const [group, figure] = path.split(".");
  return { key: path, label, title, numeric: true, hidden, sort: path, cell: (exchange) => show(exchange[group]?.[figure] ?? 0) };
}

function lost(count) {
  return count > 0 ? h("span", { class: "bad" }, number(count)) : number(count);
}

function emptyList() {
  return emptyState("There are no exchanges that you may see.", "Choose another virtual host above, or ask an administrator for permissions in this one.");
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
      empty: emptyList,
    });
    const declaration = new ExchangeDeclaration(context);
    patch(context.root, heading("Exchanges"), table.element, declaration.element);
    return async () => {
      declaration.update();
      await table.refresh();
    };
  },
};
