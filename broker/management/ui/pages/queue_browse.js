/** Form that looks at messages, ready and unacked, and changes nothing. */

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

function checkCount(count) {
  return Number.isInteger(count) && count >= 1 && count <= MOST ? null : `This must be 1 to ${exactNumber(MOST)}.`;
}
