/** Form that moves messages to another queue, in batches that can be stopped. */

import { confirmAction } from "../parts/dialog.js";
import { h, patch } from "../parts/element.js";
import { Form } from "../parts/form.js";
import { countedNoun, exactNumber } from "../parts/format.js";

const STEP = 1000;
const REASONS = [
  { value: "", label: "any, or none" },
  { value: "maxlen", label: "maxlen: over the limit" },
  { value: "expired", label: "expired" },
  { value: "rejected", label: "rejected by a consumer" },
  { value: "delivery_limit", label: "delivery_limit: delivered too often" },
];
const OFFERED = 500;

function checkLimit(limit) {
  return limit === null || (Number.isInteger(limit) && limit > 0) ? null : "This must be 1 or more.";
}

/** Form and progress of the move; `element` is created once. */
export class MoveForm {
  /** @param {Object} context context of the page */
  constructor(context) {
    this.context = context;
    this.path = ["queues", context.params.vhost, context.params.name];
    this.isStopped = false;
    this.form = new Form({
      fields: [
        { name: "to", label: "To queue", required: true, suggestions: [], hint: "In the same virtual host." },
        { name: "limit", label: "Messages", kind: "number", hint: "Empty for all messages that are ready now.", check: checkLimit },
        { name: "routing_key", label: "Only with routing key", hint: "* matches any characters, ? matches one." },
        { name: "exchange", label: "Only published to exchange", hint: "A pattern like that of the routing key." },
        { name: "reason", label: "Only dead-lettered because", kind: "select", options: REASONS, value: "" },
        { name: "queue", label: "Only dead-lettered in queue", hint: "The queue that dead-lettered the message last." },
        { name: "headers", label: "Only with headers", kind: "arguments" },
      ],
      submit: "Move …",
      keep: true,
      action: (values) => this.move(values),
    });
    this.bar = h("progress", { "aria-label": "Messages moved" });
    this.words = h("span", { role: "status" });
    this.stop = h("button", { type: "button", on: { click: () => this.halt() } }, "Stop");
    this.progress = h("p", { class: "buttons" }, this.bar, this.words, this.stop);
    this.progress.hidden = true;
    this.element = h("div", { own: true }, this.form.element, this.progress);
  }

  /** Load queue names as suggestions. Must be called when the form is opened. */
  async offer() {
    const { api, params } = this.context;
    const query = { page: 1, page_size: OFFERED, columns: "name" };
    // The form works without the suggestions.
    const { items } = await api.get(["queues", params.vhost], query).catch(() => ({ items: [] }));
    const list = this.form.element.querySelector("datalist");
    patch(list, items.filter(({ name }) => name !== params.name).map(({ name }) => h("option", { key: name, value: name })));
  }

  async move({ to, limit, headers, ...conditions }) {
    const filter = Object.fromEntries(Object.entries(conditions).filter(([, value]) => value !== ""));
    if (Object.keys(headers).length > 0) filter.headers = headers;
    const { messages_ready: ready } = await this.context.api.get(this.path, { columns: "messages_ready" });
    const total = Math.min(limit ?? ready, ready);
    if (total === 0) return "The queue has no ready messages.";
    const fitting = Object.keys(filter).length > 0 ? " that fit the conditions" : "";
    const isWanted = await confirmAction({
      title: "Move messages",
      name: this.context.params.name,
      text: `Up to ${countedNoun(total, "message")}${fitting} will be moved to queue ${to}.`,
      verb: "Move",
      action: async () => {},
    });
    return isWanted ? this.run(to, total, filter) : "";
  }

  /** Move messages in batches, so that progress is shown and the move can be stopped. */
  async run(to, total, filter) {
    let [moved, reason] = [0, ""];
    this.isStopped = false;
    this.stop.hidden = false;
    this.stop.disabled = false;
    try {
      while (moved < total && reason === "") {
        this.show(moved, total);
        const limit = Math.min(STEP, total - moved);
        const answer = await this.context.api.post([...this.path, "move-messages"], { to, limit, filter });
        moved += answer.moved;
        if (this.isStopped) reason = "it was stopped";
        else if (answer.moved < limit) reason = answer.reason;
      }
    } finally {
      this.show(moved, total);
      this.stop.hidden = true;
      this.context.refresh();
    }
    if (reason !== "" && moved < total) this.words.textContent += `: ${reason}.`;
    return `${countedNoun(moved, "message")} moved to ${to}.`;
  }

  halt() {
    this.isStopped = true;
    this.stop.disabled = true;
  }

  show(moved, total) {
    this.progress.hidden = false;
    this.bar.max = total;
    this.bar.value = moved;
    this.words.textContent = `${exactNumber(moved)} of ${exactNumber(total)} moved`;
  }
}
