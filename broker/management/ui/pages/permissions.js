/** Permissions and topic permissions of a user or in a virtual host. */

import { address } from "../parts/address.js";
import { confirmAction } from "../parts/dialog.js";
import { h } from "../parts/element.js";
import { nameText } from "../parts/format.js";
import { Form } from "../parts/form.js";
import { plainTable } from "../parts/layout.js";

const ALL = ".*";
const PATTERNS = "Regular expressions, searched in names; an empty one matches nothing.";
const USES = [
  ["configure", "Configure", "Names that may be declared and deleted."],
  ["write", "Write", "Exchanges that may be published to, queues that may be bound."],
  ["read", "Read", "Queues that may be consumed from and purged, exchanges that may be bound to."],
];
const TOPIC_USES = [
  ["write", "Write", "Routing keys that may be published with."],
  ["read", "Read", "Routing keys that queues may be bound with."],
];

/**
 * Sides of a permission: the page determines one, and the user chooses the other.
 *
 * @typedef {Object} Side
 * @property {"user"|"vhost"} fixed kind of object of the page
 * @property {"user"|"vhost"} other kind of object that is chosen
 * @property {string} label label of the other side
 * @property {string} path first segment of the other's address
 */

/** @type {Side} */
export const OF_USER = { fixed: "user", other: "vhost", label: "Virtual host", path: "vhosts" };

/** @type {Side} */
export const OF_VHOST = { fixed: "vhost", other: "user", label: "User", path: "users" };

/** Tables and forms of the permissions and the topic permissions of one user or virtual host. */
export class PermissionsPart {
  /**
   * @param {Object} context context of the page; params.name is the fixed side
   * @param {Side} side
   * @param {string[]} names names of all objects of the other side
   */
  constructor(context, side, names) {
    Object.assign(this, { context, side });
    this.fixed = { [side.fixed]: context.params.name };
    this.form = this.makeForm("permissions", names, [], USES, "Set permissions");
    const exchange = { name: "exchange", label: "Exchange", required: true, value: "amq.topic", hint: "A topic exchange." };
    this.topicForm = this.makeForm("topic-permissions", names, [exchange], TOPIC_USES, "Set topic permissions");
  }

  makeForm(resource, names, fields, uses, submit) {
    const { side } = this;
    return new Form({
      fields: [
        { name: side.other, label: side.label, kind: "select", options: names },
        ...fields,
        ...uses.map(([name, label, text]) => ({ name, label, value: ALL, hint: text })),
      ],
      submit,
      action: async (values) => {
        const { user, vhost, ...body } = { ...values, ...this.fixed };
        await this.context.api.put([resource, vhost, user], body);
        await this.context.refresh();
        return `Set for user ${user} in virtual host ${vhost}.`;
      },
    });
  }

  /**
   * @param {Object[]} permissions permissions as in the API
   * @returns {HTMLElement[]} the table and the form
   */
  permissions(permissions) {
    const { side } = this;
    const rows = permissions.map((row) => ({
      key: row[side.other],
      cells: [this.link(row), ...USES.map(([use]) => pattern(row[use])), this.clearButton("permissions", row, [row.vhost, row.user])],
    }));
    return [listed("Permissions", [side.label, ...USES.map(heading), ACTIONS], rows, this.none()), ...entering("Set", this.form)];
  }

  /**
   * @param {Object[]} permissions topic permissions as in the API
   * @returns {HTMLElement[]} the table and the form
   */
  topicPermissions(permissions) {
    const { side } = this;
    const rows = permissions.map((row) => ({
      key: JSON.stringify([row[side.other], row.exchange]),
      cells: [this.link(row), row.exchange || "(AMQP default)", ...TOPIC_USES.map(([use]) => pattern(row[use])), this.clearButton("topic-permissions", row, [row.vhost, row.user, row.exchange])],
    }));
    const none = "None: routing keys are not checked.";
    return [listed("Topic permissions", [side.label, "Exchange", ...TOPIC_USES.map(heading), ACTIONS], rows, none), ...entering("Set topic", this.topicForm)];
  }

  none() {
    return this.side.fixed === "user" ? "None: this user cannot open any virtual host. Set permissions below." : "None: no user can open this virtual host. Set permissions below.";
  }

  link(row) {
    const name = row[this.side.other];
    return h("a", { href: address(this.side.path, name) }, nameText(name));
  }

  clearButton(resource, row, path) {
    const isTopic = resource !== "permissions";
    const clear = async () => {
      const isDone = await confirmAction({
        title: isTopic ? "Clear topic permissions" : "Clear permissions",
        name: row[this.side.other],
        text: isTopic
          ? `User ${row.user} will be able to use all routing keys of exchange ${row.exchange || "(AMQP default)"} in virtual host ${row.vhost}.`
          : `User ${row.user} will no longer be able to open virtual host ${row.vhost}.`,
        verb: "Clear",
        action: () => this.context.api.delete([resource, ...path]),
      });
      if (isDone) await this.context.refresh();
    };
    return h("button", { type: "button", class: "quiet", "aria-label": `Clear permissions of ${row[this.side.other]}`, on: { click: clear } }, "Clear …");
  }
}

const ACTIONS = { label: "Actions" };

function entering(key, form) {
  return [h("p", { class: "muted", key }, PATTERNS), form.element];
}

function heading([, label, title]) {
  return { label, title };
}

function listed(caption, headings, rows, none) {
  return rows.length === 0 ? h("p", { class: "muted", key: caption }, none) : plainTable(caption, headings, rows);
}

function pattern(text) {
  return text === "" ? h("span", { class: "muted" }, "nothing") : h("code", null, text);
}
