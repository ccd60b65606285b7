/** Forms that purge and delete a queue. */

import { address } from "../parts/address.js";
import { confirmAction } from "../parts/dialog.js";
import { Form } from "../parts/form.js";

/**
 * Make the form that purges the queue of the page.
 *
 * @param {Object} context context of the page
 * @returns {Form}
 */
export function purgeForm({ api, params, refresh }) {
  return new Form({
    fields: [],
    submit: "Purge …",
    action: async () => {
      const isDone = await confirmAction({
        title: "Purge queue",
        name: params.name,
        text: "All ready messages are deleted without dead-lettering. Unacked messages are kept.",
        verb: "Purge",
        action: () => api.delete(["queues", params.vhost, params.name, "contents"]),
      });
      if (!isDone) return "";
      await refresh();
      return "The queue has been purged.";
    },
  });
}

/**
 * Make the form that deletes the queue of the page.
 *
 * @param {Object} context context of the page
 * @returns {Form}
 */
export function deleteForm(context) {
  return new Form({
    fields: [
      { name: "ifUnused", label: "Only if unused", kind: "checkbox", hint: "Unused means that it has no consumers." },
      { name: "ifEmpty", label: "Only if empty", kind: "checkbox", hint: "Empty means that no message is ready." },
    ],
    submit: "Delete …",
    keep: true,
    action: (values) => remove(context, values),
  });
}

async function remove({ api, params, navigate, notify }, { ifUnused, ifEmpty }) {
  const conditions = { "if-unused": ifUnused ? "true" : null, "if-empty": ifEmpty ? "true" : null };
  const isDone = await confirmAction({
    title: "Delete queue",
    name: params.name,
    text: "Its messages and bindings are deleted.",
    verb: "Delete",
    action: () => api.delete(["queues", params.vhost, params.name], conditions),
  });
  if (!isDone) return "";
  notify(`Queue ${params.name} has been deleted.`);
  navigate(address("queues"));
  return "";
}
