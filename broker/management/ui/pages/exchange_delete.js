/** Deleting an exchange. */

import { address } from "../parts/address.js";
import { confirmAction } from "../parts/dialog.js";
import { Form } from "../parts/form.js";

/**
 * The form to delete the exchange of the page.
 *
 * @param {Object} context of the page
 * @param {string} name of the exchange
 * @returns {Form}
 */
export function deleteForm(context, name) {
  return new Form({
    fields: [{ name: "ifUnused", label: "Only if unused", kind: "checkbox", hint: "That is, if no binding leads away from it." }],
    submit: "Delete …",
    keep: true,
    action: ({ ifUnused }) => remove(context, name, ifUnused),
  });
}

async function remove({ api, params, navigate, say }, name, ifUnused) {
  const isDone = await confirmAction({
    title: "Delete exchange",
    name,
    text: "Its bindings go with it. Who publishes to it is refused from then on.",
    verb: "Delete",
    action: () => api.delete(["exchanges", params.vhost, name], { "if-unused": ifUnused ? "true" : null }),
  });
  if (!isDone) return;
  say(`Exchange ${name} has been deleted.`);
  navigate(address("exchanges"));
}
