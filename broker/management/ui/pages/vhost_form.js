/** Form that adds or changes a virtual host. */

import { Form } from "../parts/form.js";

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
