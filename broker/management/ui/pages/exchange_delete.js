/** Form that deletes an exchange. */

import { address } from "../parts/address.js";
import { confirmAction } from "../parts/dialog.js";
import { Form } from "../parts/form.js";

/**
 * Make the form that deletes the exchange of the page.
 *
 * @param {Object} context context of the page
 * @param {string} name name of the exchange
 * @returns {Form}
 */
export function deleteForm(context, name) {
  return new Form({
    fields: [{ name: "ifUnused", label: "Only if unused", kind: "checkbox", hint: "Unused means that it has no bindings to queues or other exchanges." }],
    submit: "Delete …",
    keep: true,
    action: ({ ifUnused }) => remove(context, name, ifUnused),
  });
}

async function remove({ api, params, navigate, notify }, name, ifUnused) {
  const isDone = await confirmAction({
    title: "Delete exchange",
    name,
    text: "Its bindings are deleted. Publishing to it will fail.",
    verb: "Delete",
    action: () => api.delete(["exchanges", params.vhost, name], { "if-unused": ifUnused ? "true" : null }),
  });
  if (!isDone) return;
  notify(`Exchange ${name} has been deleted.`);
  navigate(address("exchanges"));
}
