/** The named consumers of a stream: where each goes on, and forms that set and delete one. */

import { address } from "../parts/address.js";
import { ApiError } from "../parts/api.js";
import { confirmAction } from "../parts/dialog.js";
import { h, patch } from "../parts/element.js";
import { Form } from "../parts/form.js";
import { dateTime, exactNumber } from "../parts/format.js";
import { emptyState, plainTable } from "../parts/layout.js";

/** Number of names that are listed. */
const SHOWN = 200;
const COLUMNS = [
  "Name",
  { label: "Goes on with", numeric: true, title: "Offset of the first message that has not been acknowledged" },
  { label: "Behind", numeric: true, title: "Number of offsets from there to the end of the stream" },
  { label: "Missed", numeric: true, title: "Messages that retention has removed before they were delivered" },
  "Changed",
  "Active consumer",
  { label: "Waiting", numeric: true, title: "Consumers that wait for their turn" },
  "Action",
];
const NEXT_HINT = "first, last, next, an offset, a time such as 2026-01-31T12:00:00Z, or an age such as 90m or 7D.";

/** List of the names, and a form; `element` is created once. */
export class ConsumerNames {
  /** @param {Object} context context of the page */
  constructor(context) {
    this.context = context;
    this.path = ["queues", context.params.vhost, context.params.name, "consumer-names"];
    this.list = h("div", null);
    this.form = new Form({
      fields: [
        { name: "name", label: "Consumer name", required: true },
        { name: "next", label: "Goes on with", required: true, hint: NEXT_HINT },
      ],
      submit: "Set",
      action: ({ name, next }) => this.set(name, next),
    });
    this.element = h("div", { own: true }, this.list, this.form.element);
  }

  /** Load the names and show them. */
  async refresh() {
    let found;
    try {
      found = await this.context.api.get(this.path);
    } catch (error) {
      if (!(error instanceof ApiError) || error.isLoggedOut) throw error;
      // Looking needs the permission to read.
      patch(this.list, h("p", { class: "muted" }, `The names cannot be shown: ${error.message}`));
      return;
    }
    if (found.length === 0) {
      const advice = "A consumer with the argument x-stream-consumer-name goes on where the last one of its name has left off.";
      patch(this.list, emptyState("No consumer of this stream has a name.", advice));
      return;
    }
    const rows = found.slice(0, SHOWN).map((each) => ({ key: each.name, cells: this.cells(each) }));
    const more = found.length > SHOWN ? h("p", { class: "muted" }, `The first ${SHOWN} of ${exactNumber(found.length)}.`) : null;
    patch(this.list, plainTable("consumer names", COLUMNS, rows), more);
  }

  cells({ name, next_offset: next, lag, missed, changed, active, waiting }) {
    const remove = { click: () => this.remove(name) };
    return [
      name,
      exactNumber(next),
      exactNumber(lag),
      missed === 0 ? "0" : h("span", { class: "bad" }, exactNumber(missed)),
      changed === null ? "" : dateTime(changed),
      active === null
        ? h("span", { class: "muted" }, "none")
        : [h("a", { href: address("channels", active.channel_details.name) }, active.channel_details.name), ` ${active.consumer_tag}`],
      exactNumber(waiting),
      active === null ? h("button", { type: "button", class: "quiet", on: remove }, "Delete …") : null,
    ];
  }

  async set(name, next) {
    await this.context.api.put([...this.path, name], { next });
    this.context.notify(`Consumer name ${name} goes on with ${next}.`);
    await this.context.refresh();
  }

  async remove(name) {
    const isDone = await confirmAction({
      title: "Delete a consumer name",
      name,
      text: "The broker forgets where it has left off. A later consumer of the name begins with the next message.",
      verb: "Delete",
      action: () => this.context.api.delete([...this.path, name]),
    });
    if (!isDone) return;
    this.context.notify(`Consumer name ${name} has been deleted.`);
    await this.context.refresh();
  }
}
