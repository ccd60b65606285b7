/** Page with the list of virtual hosts. */

import { address } from "../parts/address.js";
import { badge } from "../parts/badge.js";
import { listColumns } from "../parts/columns.js";
import { h, patch } from "../parts/element.js";
import { Form } from "../parts/form.js";
import { nameText } from "../parts/format.js";
import { emptyState, folded, heading } from "../parts/layout.js";
import { Table } from "../parts/table.js";

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
  return listColumns("vhosts", {
    name: ({ name }) => (isLinked ? h("a", { href: address("vhosts", name) }, nameText(name)) : nameText(name)),
    default_queue_type: ({ default_queue_type: type }) => (type === "undefined" ? null : type),
    tracing: ({ tracing }) => (tracing ? badge("on", "All published and delivered messages are copied to amq.rabbitmq.trace", "warning") : null),
  });
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

const TYPES = [
  { value: "undefined", label: "classic, as the broker has it" },
  { value: "classic", label: "classic" },
  { value: "quorum", label: "quorum" },
  { value: "stream", label: "stream" },
];

/**
 * Make the form.
 *
 * @param {Object} context context of the page
 * @param {{vhost?: Object, saved: function(string): Promise}} given `vhost`: virtual host to change, as in the API;
 *   `saved`: called with its name after it was saved
 * @returns {Form}
 */
export function vhostForm(context, { vhost, saved }) {
  return new Form({
    fields: [
      ...(vhost === undefined ? [{ name: "name", label: "Name", required: true }] : []),
      { name: "description", label: "Description", value: vhost?.description ?? "" },
      { name: "tags", label: "Tags", value: vhost?.tags.join(", ") ?? "", hint: "Separated by commas." },
      { name: "defaultType", label: "Default queue type", kind: "select", options: TYPES, value: vhost?.default_queue_type ?? "undefined", hint: "Type of durable queues that are declared without a type." },
      { name: "tracing", label: "Tracing", kind: "checkbox", value: vhost?.tracing ?? false, hint: "Copies all published and delivered messages to amq.rabbitmq.trace." },
    ],
    submit: vhost === undefined ? "Add virtual host" : "Save",
    keep: true,
    action: async ({ name, description, tags, defaultType, tracing }) => {
      const vhostName = vhost?.name ?? name;
      await context.api.put(["vhosts", vhostName], { description, tags, default_queue_type: defaultType, tracing });
      await Promise.all([context.reloadVhosts(), saved(vhostName)]);
      return `Virtual host ${vhostName} is saved.`;
    },
  });
}
