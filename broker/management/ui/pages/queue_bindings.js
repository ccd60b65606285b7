/** Bindings of a queue, and the form that adds bindings. */

import { exchangeAddress } from "../parts/address.js";
import { confirmAction } from "../parts/dialog.js";
import { h } from "../parts/element.js";
import { nameText } from "../parts/format.js";
import { Form } from "../parts/form.js";
import { emptyState, valueTable } from "../parts/layout.js";
import { localPage } from "../parts/local_page.js";
import { Table } from "../parts/table.js";

/**
 * Make the table of bindings.
 *
 * @param {Object} context context of the page
 * @returns {Table}
 */
export function bindingsTable(context) {
  const { vhost, name } = context.params;
  return new Table({
    id: "queue-bindings",
    place: JSON.stringify(["bindings of", vhost, name]),
    caption: "bindings",
    filterLabel: "Filter by exchange or routing key",
    columns: [
      { key: "source", label: "From", sort: "source", fixed: true, cell: ({ source }) => sourceLink(vhost, source) },
      { key: "routing_key", label: "Routing key", sort: "routing_key", cell: (binding) => binding.routing_key },
      { key: "arguments", label: "Arguments", cell: (binding) => valueTable(binding.arguments) },
      { key: "unbind", label: "Action", fixed: true, cell: (binding) => action(context, binding) },
    ],
    rowKey: ({ source, properties_key: key }) => JSON.stringify([source, key]),
    load: async (query) => localPage(await context.api.get(["queues", vhost, name, "bindings"]), query, filtered),
    empty: () => emptyState("This queue has no bindings."),
  });
}

function sourceLink(vhost, name) {
  return h("a", { href: exchangeAddress(vhost, name) }, nameText(name || "(AMQP default)"));
}

/** Return the text that the filter applies to. */
function filtered({ source, routing_key: key }) {
  return `${source}\n${key}`;
}

function action(context, binding) {
  if (binding.source === "") {
    return h("span", { class: "muted", title: "Every queue is bound to the default exchange with its name" }, "implicit");
  }
  return h("button", { type: "button", class: "quiet", on: { click: () => unbind(context, binding) } }, "Unbind …");
}

async function unbind({ api, params, refresh, notify }, { source, routing_key: key, properties_key: props }) {
  const isDone = await confirmAction({
    title: "Remove binding",
    name: `${source} → ${params.name}`,
    text: key === "" ? "It has no routing key." : `Routing key: ${key}`,
    verb: "Unbind",
    action: () => api.delete(["bindings", params.vhost, "e", source, "q", params.name, props]),
  });
  if (!isDone) return;
  notify("The binding has been removed.");
  await refresh();
}

/**
 * Make the form that binds the queue to an exchange.
 *
 * @param {Object} context context of the page
 * @returns {Form}
 */
export function bindingForm({ api, params, refresh }) {
  return new Form({
    fields: [
      { name: "source", label: "From exchange", required: true },
      { name: "key", label: "Routing key", hint: "For topic exchanges: * is any word, # any number of words." },
      { name: "arguments", label: "Arguments", kind: "arguments", hint: "For headers exchanges: x-match, and headers." },
    ],
    submit: "Bind",
    action: async ({ source, key, arguments: args }) => {
      await api.post(["bindings", params.vhost, "e", source, "q", params.name], { routing_key: key, arguments: args });
      await refresh();
      return `The queue has been bound to ${source}.`;
    },
  });
}
