/** The named consumers of a stream: where each goes on, and forms that set and delete one. */

import { address } from "../parts/address.js";
import { ApiError } from "../parts/api.js";
import { listColumns } from "../parts/columns.js";
import { confirmAction } from "../parts/dialog.js";
import { h, patch } from "../parts/element.js";
import { Form } from "../parts/form.js";
import { exactNumber } from "../parts/format.js";
import { emptyState, objectTable } from "../parts/layout.js";

/** Number of names that are listed. */
const SHOWN = 200;
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
    const more = found.length > SHOWN ? h("p", { class: "muted" }, `The first ${SHOWN} of ${exactNumber(found.length)}.`) : null;
    patch(this.list, objectTable("consumer names", this.columns(), found.slice(0, SHOWN)), more);
  }

  columns() {
    const columns = listColumns("consumer-names", {
      missed: ({ missed }) => (missed === 0 ? "0" : h("span", { class: "bad" }, exactNumber(missed))),
      active: ({ active }) =>
        active === null
          ? h("span", { class: "muted" }, "none")
          : [h("a", { href: address("channels", active.channel_details.name) }, active.channel_details.name), ` ${active.consumer_tag}`],
    });
    const remove = (name) => h("button", { type: "button", class: "quiet", on: { click: () => this.remove(name) } }, "Delete …");
    return [...columns, { label: "Action", cell: ({ name, active }) => (active === null ? remove(name) : null) }];
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
