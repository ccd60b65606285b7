/** Form that gets messages, and requeues or removes them. */

import { confirmAction } from "../parts/dialog.js";
import { h } from "../parts/element.js";
import { Form } from "../parts/form.js";
import { countedNoun, exactNumber } from "../parts/format.js";
import { messageView } from "./queue_message.js";

const MODES = [
  { value: "ack_requeue_true", label: "nack, requeue: they stay" },
  { value: "reject_requeue_true", label: "reject, requeue: they stay" },
  { value: "ack_requeue_false", label: "ack: they are removed" },
  { value: "reject_requeue_false", label: "reject: removed, or dead-lettered" },
];
const KEEPING = new Set(["ack_requeue_true", "reject_requeue_true"]);
/** Maximum number of payload bytes that are shown. */
const TRUNCATE = 50_000;
const MOST = 1000;

/** Form and the fetched messages; `element` is created once. */
export class GetForm {
  /** @param {Object} context context of the page */
  constructor(context) {
    this.context = context;
    this.form = new Form({
      fields: [
        {
          name: "mode",
          label: "Mode",
          kind: "select",
          options: MODES,
          value: "ack_requeue_true",
          hint: "Requeued messages return to their positions, marked as redelivered.",
        },
        { name: "count", label: "Messages", kind: "number", value: "1", required: true, check: checkCount },
      ],
      submit: "Get messages",
      keep: true,
      action: (values) => this.get(values),
    });
    this.messages = h("div", { class: "messages" });
    this.element = h("div", { own: true }, this.form.element, this.messages);
  }

  async get({ mode, count }) {
    if (KEEPING.has(mode)) return this.fetch(mode, count);
    let said = "";
    await confirmAction({
      title: mode === "ack_requeue_false" ? "Get and remove messages" : "Get and reject messages",
      name: this.context.params.name,
      text: `Up to ${countedNoun(count, "message")} will be removed${mode === "ack_requeue_false" ? "" : ", or dead-lettered"}.`,
      verb: "Get and remove",
      action: async () => {
        said = await this.fetch(mode, count);
      },
    });
    return said;
  }

  async fetch(mode, count) {
    const { api, params, refresh } = this.context;
    const { vhost, name } = params;
    const body = { ackmode: mode, count, encoding: "auto", truncate: TRUNCATE };
    const got = await api.request("POST", ["queues", vhost, name, "get"], { body, exact: true });
    const views = got.map((message, index) => messageView(message, `Message ${index + 1} of ${got.length}`, vhost));
    this.messages.replaceChildren(...views);
    await refresh();
    if (got.length === 0) return "The queue had no ready messages.";
    return `${countedNoun(got.length, "message")}, ${exactNumber(got.at(-1).message_count)} more in the queue.`;
  }
}

function checkCount(count) {
  return Number.isInteger(count) && count >= 1 && count <= MOST ? null : `This must be 1 to ${exactNumber(MOST)}.`;
}
