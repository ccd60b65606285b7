/** Page with the list of virtual hosts. */

import { address } from "../parts/address.js";
import { badge } from "../parts/badge.js";
import { h, patch } from "../parts/element.js";
import { nameText, number, rate } from "../parts/format.js";
import { emptyState, folded, heading } from "../parts/layout.js";
import { Table } from "../parts/table.js";
import { vhostForm } from "./vhost_form.js";

export default {
  title: () => "Virtual hosts",

  mount(context) {
    const { api, root } = context;
    const table = new Table({
      id: "vhosts",
      caption: "virtual hosts",
      columns: columns(context.user.may("administrator")),
      sort: "name",
      needs: ["name"],
      rowKey: ({ name }) => name,
      load: (query) => api.get(["vhosts"], query),
      empty: () => emptyState("There are no virtual hosts that you may see.", "An administrator can give you permissions in one."),
    });
    const add = makeForm(context);
    patch(root, heading("Virtual hosts"));
    return async () => {
      await table.refresh();
      patch(root, heading("Virtual hosts"), table.element, add);
    };
  },
};

function columns(isLinked) {
  return [
    { key: "name", label: "Name", sort: "name", fixed: true, cell: ({ name }) => (isLinked ? h("a", { href: address("vhosts", name) }, nameText(name)) : nameText(name)) },
    { key: "description", label: "Description", sort: "description", cell: ({ description }) => description },
    { key: "tags", label: "Tags", sort: "tags", cell: ({ tags }) => tags.join(", ") },
    { key: "default_queue_type", label: "Default queue type", sort: "default_queue_type", hidden: true, cell: ({ default_queue_type: type }) => (type === "undefined" ? null : type) },
    { key: "tracing", label: "Tracing", sort: "tracing", cell: ({ tracing }) => (tracing ? badge("on", "All published and delivered messages are copied to amq.rabbitmq.trace", "warning") : null) },
    level("messages_ready", "Ready"),
    level("messages_unacknowledged", "Unacked"),
    level("messages", "Total"),
    speed("publish", "Published"),
    speed("deliver_get", "Delivered"),
  ];
}

function level(key, label) {
  return { key, label, numeric: true, sort: key, cell: (vhost) => number(vhost[key] ?? 0) };
}

function speed(figure, label) {
  const path = `message_stats.${figure}_details.rate`;
  return { key: figure, label, numeric: true, sort: path, fields: [path], cell: ({ message_stats: stats }) => rate(stats?.[`${figure}_details`]?.rate ?? 0) };
}

function makeForm(context) {
  if (!context.user.may("administrator")) return null;
  const saved = async (name) => {
    form.reset();
    context.notify(`Virtual host ${name} is added.`);
    context.navigate(address("vhosts", name));
  };
  const form = vhostForm(context, { saved });
  return folded("Add a virtual host", form.element);
}
