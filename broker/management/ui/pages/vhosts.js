/** Page with the list of virtual hosts. */

import { address } from "../parts/address.js";
import { badge } from "../parts/badge.js";
import { listColumns } from "../parts/columns.js";
import { h, patch } from "../parts/element.js";
import { nameText } from "../parts/format.js";
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
