/** Page with the list of queues. */

import { address } from "../parts/address.js";
import { clientState } from "../parts/client_state.js";
import { h, patch } from "../parts/element.js";
import { bytes, isNumber, nameText, number, span } from "../parts/format.js";
import { emptyState, heading, valueTable } from "../parts/layout.js";
import { rateColumn } from "../parts/rate_column.js";
import { Table } from "../parts/table.js";
import { DeclarationForm } from "./queue_declaration.js";
import { FEATURE_FIELDS, features, policyLink } from "./queue_features.js";
import { nearestFill } from "./queue_fill.js";

const COLUMNS = [
  {
    key: "name",
    label: "Name",
    sort: "name",
    fields: ["name", "vhost"],
    fixed: true,
    cell: ({ vhost, name }) => h("a", { href: address("queues", vhost, name) }, nameText(name)),
  },
  {
    key: "fill",
    label: "Fill",
    title: "Usage of the nearest limit; click to sort by it, fullest queue first",
    numeric: true,
    sort: "fill",
    cell: (queue) => nearestFill(queue.fill),
  },
  count("messages_ready", "Ready", "Messages ready for delivery"),
  { key: "state", label: "State", sort: "state", fields: ["state", "idle_since"], cell: clientState },
  count("messages_unacknowledged", "Unacked", "Messages delivered but not yet acknowledged"),
  count("messages", "Total", "Ready and unacked messages", true),
  count("consumers", "Consumers", "Number of consumers"),
  age("oldest_ready_age", "Oldest", "Time since the arrival of the oldest ready message"),
  age("oldest_unacked_age", "Oldest unacked", "Time since the arrival of the oldest unacked message", true),
  {
    key: "lost",
    label: "Lost",
    title: "Messages dropped, or refused without word to the publisher, that did not reach a dead-letter queue, since losses are counted",
    numeric: true,
    sort: "loss_stats.lost",
    fields: ["loss_stats.lost"],
    cell: ({ loss_stats: stats }) => lost(stats?.lost ?? 0),
  },
  rateColumn("publish", "In", "Messages published to the queue"),
  rateColumn("deliver_get", "Deliver", "Messages delivered to consumers or fetched"),
  rateColumn("ack", "Ack", "Messages acknowledged by consumers"),
  {
    key: "policy",
    label: "Policy",
    sort: "policy",
    fields: ["policy", "vhost"],
    cell: ({ vhost, policy }) => policyLink(vhost, policy),
  },
  { key: "features", label: "Features", fields: FEATURE_FIELDS, cell: (queue) => h("span", { class: "room" }, features(queue)) },
  { key: "arguments", label: "Arguments", hidden: true, cell: (queue) => valueTable(queue.arguments) },
  { key: "type", label: "Type", sort: "type", cell: (queue) => queue.type },
  {
    key: "operator_policy",
    label: "Op. policy",
    title: "Operator policy",
    sort: "operator_policy",
    fields: ["operator_policy", "vhost"],
    cell: (queue) => policyLink(queue.vhost, queue.operator_policy, true),
  },
  size("message_bytes_ready", "Bytes ready", "Body bytes of ready messages"),
  size("message_bytes", "Bytes", "Body bytes of all messages", true),
];

function count(key, label, title, hidden = false) {
  return { key, label, title, numeric: true, hidden, sort: key, cell: (queue) => number(queue[key]) };
}

function age(key, label, title, hidden = false) {
  const cell = ({ [key]: seconds }) => (isNumber(seconds) ? span(seconds) : null);
  return { key, label, title, numeric: true, hidden, sort: key, cell };
}

function lost(messages) {
  return messages > 0 ? h("span", { class: "bad" }, number(messages)) : number(messages);
}

function size(key, label, title, hidden = false) {
  return { key, label, title, numeric: true, hidden, sort: key, cell: (queue) => bytes(queue[key]) };
}

function vhostColumn(context) {
  const isRedundant = () => context.vhost !== "" || context.vhosts.length < 2;
  return { key: "vhost", label: "Virtual host", sort: "vhost", isRedundant, cell: (queue) => queue.vhost };
}

function emptyList() {
  return emptyState("There are no queues here.", "Applications declare the queues that they need, or you can add one below.");
}

export default {
  title: () => "Queues",

  async mount(context) {
    if (context.vhosts.length === 0) await context.reloadVhosts();
    const table = new Table({
      id: "queues",
      columns: [vhostColumn(context), ...COLUMNS],
      needs: ["name", "vhost"],
      rowKey: ({ vhost, name }) => JSON.stringify([vhost, name]),
      load: (query) => context.api.get(context.vhost === "" ? ["queues"] : ["queues", context.vhost], query),
      empty: emptyList,
      state: context.query.get("sort") === "fill" ? { sort: "fill", reverse: true, name: "", page: 1 } : {},
    });
    const declaration = new DeclarationForm(context);
    patch(context.root, heading("Queues"), table.element, declaration.element);
    return async () => {
      declaration.update();
      await table.refresh();
    };
  },
};
