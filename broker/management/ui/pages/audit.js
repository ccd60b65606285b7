/** Page with the audit log: who has done what, from where. */

import { badge } from "../parts/badge.js";
import { h, patch } from "../parts/element.js";
import { Form } from "../parts/form.js";
import { dateTime, nameText, number } from "../parts/format.js";
import { actions, emptyState, heading, plainTable } from "../parts/layout.js";

const FIELDS = [
  { name: "user", label: "User", hint: "In all texts, * stands for any characters." },
  { name: "host", label: "Address" },
  { name: "kind", label: "What", hint: "Such as queue.purged, *.deleted or user.*" },
  { name: "object", label: "Object", hint: "Name of the queue, exchange, user …" },
  { name: "since", label: "Since", hint: "UTC, such as 2026-05-01T12:00:00" },
  { name: "until", label: "Until" },
];

const COLUMNS = [
  { label: "Time" },
  { label: "User" },
  { label: "Address" },
  { label: "What" },
  { label: "Virtual host" },
  { label: "Object" },
  { label: "Count", numeric: true },
  { label: "Details", wide: true },
];

export default {
  title: () => "Audit log",

  mount(context) {
    patch(context.root, heading("Audit log"));
    const page = new AuditPage(context);
    return () => page.refresh();
  },
};

class AuditPage {
  constructor(context) {
    this.context = context;
    this.wanted = {};
    this.page = 1;
    this.form = new Form({
      fields: FIELDS,
      submit: "Search",
      keep: true,
      action: async (values) => {
        this.wanted = values;
        this.page = 1;
        await this.refresh();
      },
    });
  }

  async refresh() {
    const { api, root, vhost } = this.context;
    const found = await api.get(["audit"], { ...this.wanted, vhost, page: this.page });
    const list = found.items.length === 0 ? none(found.enabled) : plainTable("audit log", COLUMNS, found.items.map(row));
    patch(root, heading("Audit log"), this.form.element, list, this.turning(found));
  }

  /** Return the buttons to the pages before and after this one. */
  turning(found) {
    const turn = (by) => async () => {
      this.page += by;
      await this.context.refresh();
    };
    const button = (label, by, isThere) => isThere && h("button", { type: "button", class: "quiet", on: { click: turn(by) } }, label);
    return actions(button("Newer", -1, found.page > 1), button("Older", 1, found.has_more));
  }
}

function none(isEnabled) {
  return isEnabled ? emptyState("Nothing was found.") : emptyState("There is no audit log.", "audit.enabled is false.");
}

function row({ at, kind, user, host, broker, vhost, object, count, details }, index) {
  const what = broker ? [kind, " ", badge("consequence", "Nobody has asked for it: it goes with something that was done", "plain")] : kind;
  return {
    key: `${at} ${index}`,
    cells: [dateTime(at), nameText(user), host, h("span", null, what), vhost, nameText(object), count === null ? null : number(count), h("code", null, JSON.stringify(details))],
  };
}
