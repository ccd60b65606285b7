/** Purging and deleting a queue. */

import { address } from "../parts/address.js";
import { confirmAction } from "../parts/dialog.js";
import { Form } from "../parts/form.js";

/**
 * The form to purge the queue of the page.
 *
 * @param {Object} context of the page
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
        text: "All its ready messages are deleted; nothing dead-letters them. Unacked ones stay.",
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
 * The form to delete the queue of the page.
 *
 * @param {Object} context of the page
 * @returns {Form}
 */
export function deleteForm(context) {
  return new Form({
    fields: [
      { name: "ifUnused", label: "Only if unused", kind: "checkbox", hint: "That is, if it has no consumers." },
      { name: "ifEmpty", label: "Only if empty", kind: "checkbox", hint: "That is, if no message is ready." },
    ],
    submit: "Delete …",
    keep: true,
    action: (values) => remove(context, values),
  });
}

async function remove({ api, params, navigate, say }, { ifUnused, ifEmpty }) {
  const conditions = { "if-unused": ifUnused ? "true" : null, "if-empty": ifEmpty ? "true" : null };
  const isDone = await confirmAction({
    title: "Delete queue",
    name: params.name,
    text: "Its messages and bindings go with it.",
    verb: "Delete",
    action: () => api.delete(["queues", params.vhost, params.name], conditions),
  });
  if (!isDone) return "";
  say(`Queue ${params.name} has been deleted.`);
  navigate(address("queues"));
  return "";
}
