/** Closing a connection. */

import { address } from "../parts/address.js";
import { confirmAction } from "../parts/dialog.js";
import { Form } from "../parts/form.js";

/** Reply texts are short strings, and the broker puts a few words before them. */
const REASON_BYTES = 200;

/**
 * The form to close the connection of the page.
 *
 * @param {Object} context of the page
 * @returns {Form}
 */
export function closeForm(context) {
  return new Form({
    fields: [{ name: "reason", label: "Reason", hint: "The client is told. Most clients connect again by themselves.", value: "Closed via management plugin", check: checkReason }],
    submit: "Close …",
    keep: true,
    action: ({ reason }) => close(context, reason),
  });
}

function checkReason(reason) {
  return octets(reason).length > REASON_BYTES ? `This has to be ${REASON_BYTES} bytes or less.` : null;
}

async function close({ api, params, navigate, say }, reason) {
  const isDone = await confirmAction({
    title: "Close connection",
    name: params.name,
    text: "Its channels and consumers go with it; what is not acknowledged goes back to its queues.",
    verb: "Close",
    action: () => api.delete(["connections", params.name], {}, reason === "" ? {} : { "X-Reason": octets(reason) }),
  });
  if (!isDone) return;
  say(`Connection ${params.name} has been closed.`);
  navigate(address("connections"));
}

/** Headers hold bytes, which scripts write as the characters of the same number; the API reads them as UTF-8. */
function octets(text) {
  return String.fromCharCode(...new TextEncoder().encode(text));
}
