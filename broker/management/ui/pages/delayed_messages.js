/**
 * Messages that wait in an exchange x-delayed-message, or for their retry in a queue: the next ones, one of them in full, cancel,
 * and deliver now.
 */

import { ApiError } from "../parts/api.js";
import { confirmAction } from "../parts/dialog.js";
import { h, patch } from "../parts/element.js";
import { bytes, countedNoun, exactNumber, moment, nameText, span } from "../parts/format.js";
import { actions, emptyState, plainTable } from "../parts/layout.js";
import { messageView } from "./queue_message.js";

/** Number of messages that are listed. */
const COUNT = 20;
/** Maximum number of payload bytes that are shown. */
const TRUNCATE = 50_000;
/** Later times than this are not in the calendar of browsers. */
const LATEST = 8.64e15;

const WORDS = {
  exchange: {
    empty: "Messages with a positive header x-delay wait here until they are due.",
    deliver: "It is routed to its queues at once, as if it were due.",
    cancel: "It is removed and reaches no queue.",
  },
  queue: {
    empty: "Returned messages wait here before they are redelivered.",
    deliver: "It becomes ready at once, as if it were due.",
    cancel: "It is removed from the queue and not dead-lettered.",
  },
};

/** List of waiting messages; `element` is created once. */
export class DelayedMessages {
  /**
   * @param {Object} context context of the page
   * @param {string} kind "exchange" or "queue"
   * @param {string} name its name
   */
  constructor(context, kind, name) {
    this.context = context;
    this.words = WORDS[kind];
    this.kind = kind;
    this.path = [`${kind}s`, context.params.vhost, name, "delayed"];
    this.list = h("div", null);
    this.message = h("div", { class: "messages" });
    this.element = h("div", { own: true }, this.list, this.message);
  }

  /** Load the next messages and show them. */
  async refresh() {
    let found;
    try {
      found = await this.context.api.get(this.path, { count: COUNT });
    } catch (error) {
      if (!(error instanceof ApiError) || error.isLoggedOut) throw error;
      // Looking needs the permission to read.
      patch(this.list, h("p", { class: "muted" }, `The messages cannot be shown: ${error.message}`));
      return;
    }
    const { messages_delayed: total, messages } = found;
    if (total === 0) {
      patch(this.list, emptyState(`No message waits in this ${this.kind}.`, this.words.empty));
      return;
    }
    const delay = this.kind === "exchange" ? [{ label: "Delay", wide: true }] : [];
    const columns = ["Due", ...delay, "Routing key", { label: "Size", numeric: true }, "Action"];
    const rows = messages.map((message) => ({ key: String(message.id), cells: this.cells(message) }));
    const words = total > messages.length ? `The next ${exactNumber(messages.length)} of ${countedNoun(total, "message")}:` : `${countedNoun(total, "message")}:`;
    patch(this.list, h("p", null, words), plainTable("delayed messages", columns, rows));
  }

  cells(message) {
    const button = (label, action) => h("button", { type: "button", class: "quiet", on: { click: () => action.call(this, message) } }, label);
    return [
      message.due > LATEST ? exactNumber(message.due) : moment(message.due),
      ...(this.kind === "exchange" ? [span(message.delay / 1000)] : []),
      message.routing_key === "" ? h("span", { class: "muted" }, "empty") : nameText(message.routing_key),
      bytes(message.payload_bytes),
      actions(button("Show", this.show), button("Deliver now …", this.deliver), button("Cancel …", this.cancel)),
    ];
  }

  async show({ id }) {
    const message = await this.context.api.get([...this.path, id], { truncate: TRUNCATE });
    this.message.replaceChildren(messageView(message, `Message ${id}`, this.context.params.vhost));
  }

  deliver(message) {
    return this.take(message, {
      title: "Deliver a message now",
      text: this.words.deliver,
      isHarmless: true,
      verb: "Deliver now",
      said: "has been delivered",
      action: () => this.context.api.post([...this.path, message.id, "deliver"]),
    });
  }

  cancel(message) {
    return this.take(message, {
      title: "Cancel a message",
      text: this.words.cancel,
      verb: "Cancel the message",
      said: "has been cancelled",
      action: () => this.context.api.delete([...this.path, message.id]),
    });
  }

  async take({ id }, { said, ...dialog }) {
    const isDone = await confirmAction({ name: `Message ${id}`, ...dialog });
    if (!isDone) return;
    this.message.replaceChildren();
    this.context.notify(`Message ${id} ${said}.`);
    await this.context.refresh();
  }
}
