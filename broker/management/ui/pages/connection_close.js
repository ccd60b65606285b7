/** Form that closes a connection. */

import { address } from "../parts/address.js";
import { confirmAction } from "../parts/dialog.js";
import { Form } from "../parts/form.js";

/** Maximum length: reply texts are short strings, and the broker adds a prefix. */
const REASON_BYTES = 200;

/**
 * Make the form that closes the connection of the page.
 *
 * @param {Object} context of the page
 * @returns {Form}
 */
export function closeForm(context) {
  return new Form({
    fields: [{ name: "reason", label: "Reason", hint: "The reason is sent to the client. Most clients reconnect automatically.", value: "Closed via management plugin", check: checkReason }],
    submit: "Close …",
    keep: true,
    action: ({ reason }) => close(context, reason),
  });
}

function checkReason(reason) {
  return octets(reason).length > REASON_BYTES ? `This must be ${REASON_BYTES} bytes or less.` : null;
}

async function close({ api, params, navigate, notify }, reason) {
  const isDone = await confirmAction({
    title: "Close connection",
    name: params.name,
    text: "Its channels and consumers are closed; unacknowledged messages are requeued.",
    verb: "Close",
    action: () => api.delete(["connections", params.name], {}, reason === "" ? {} : { "X-Reason": octets(reason) }),
  });
  if (!isDone) return;
  notify(`Connection ${params.name} has been closed.`);
  navigate(address("connections"));
}

/** Encode text as UTF-8 for a header: each byte becomes the character with its code. */
function octets(text) {
  return String.fromCharCode(...new TextEncoder().encode(text));
}
