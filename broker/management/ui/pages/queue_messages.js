/** Forms that show messages of a queue: one looks at them and changes nothing, one gets them, and requeues or removes them. */

import { confirmAction } from "../parts/dialog.js";
import { h } from "../parts/element.js";
import { Form } from "../parts/form.js";
import { countedNoun, dateTime, exactNumber, span } from "../parts/format.js";
import { messageView } from "./queue_message.js";

/** Maximum number of payload bytes that are shown. */
const TRUNCATE = 50_000;
const MOST = 1000;
const HINT =
  "One condition per line; all must match: routing_key=…, exchange=…, queue=…, reason=…, header.NAME=…, " +
  "property.NAME=…, body.PATH=…, older_than=1h, newer_than=30s.";

/** Form and the messages; `element` is created once. */
export class BrowseForm {
  /** @param {Object} context context of the page */
  constructor(context) {
    this.context = context;
    this.asked = null;
    this.form = new Form({
      fields: [
        { name: "count", label: "Messages", kind: "number", value: "20", required: true, check: checkCount },
        { name: "filter", label: "Only with", kind: "textarea", rows: 2, wide: true, hint: HINT },
      ],
      submit: "Show messages",
      keep: true,
      action: (values) => this.begin(values),
    });
    this.messages = h("div", { class: "messages" });
    this.more = h("button", { type: "button", on: { click: () => this.continue() } }, "Next messages");
    this.following = h("p", { class: "buttons" }, this.more);
    this.following.hidden = true;
    this.element = h("div", { own: true }, this.form.element, this.messages, this.following);
    this.isNext = false;
  }

  /** Show the next page of what was asked for: errors and counts appear as for the first one. */
  continue() {
    this.isNext = true;
    this.form.element.requestSubmit();
    this.isNext = false;
  }

  /** Show the first page, or the next one of what was asked for. */
  async begin({ count, filter }) {
    if (!this.isNext) this.asked = { count, filter, from: "", shown: 0 };
    const { api, params } = this.context;
    const { vhost, name } = params;
    const query = { from: this.asked.from, count: this.asked.count, filter: this.asked.filter, truncate: TRUNCATE };
    const page = await api.request("GET", ["queues", vhost, name, "browse"], { query, exact: true });
    const first = this.asked.shown + 1;
    this.messages.replaceChildren(...page.messages.map((each, index) => messageView(each, title(each, first + index), vhost)));
    this.asked = { ...this.asked, from: page.next ?? "", shown: this.asked.shown + page.messages.length };
    this.following.hidden = page.next === null;
    return said(page);
  }
}

function title({ state, due, age, place }, number) {
  const when = due ? ` until ${dateTime(due)}` : "";
  return `Message ${exactNumber(number)}, ${state}${when}${age === null ? "" : `, arrived ${span(age)} ago`}, place ${place}`;
}

function said({ messages, next, scanned, unreadable }) {
  const left = unreadable ? `; others could not be read (${unreadable})` : "";
  const seen = `${countedNoun(messages.length, "message")} of ${exactNumber(scanned)} that were read${left}`;
  return next === null ? `${seen}; there are no more.` : `${seen}.`;
}

const MODES = [
  { value: "ack_requeue_true", label: "nack, requeue: they stay" },
  { value: "reject_requeue_true", label: "reject, requeue: they stay" },
  { value: "ack_requeue_false", label: "ack: they are removed" },
  { value: "reject_requeue_false", label: "reject: removed, or dead-lettered" },
];
const KEEPING = new Set(["ack_requeue_true", "reject_requeue_true"]);

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
