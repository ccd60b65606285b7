/** Page of a user: permissions, limits and connections. */

import { address } from "../parts/address.js";
import { confirmAction } from "../parts/dialog.js";
import { h, patch } from "../parts/element.js";
import { Form } from "../parts/form.js";
import { countedNoun } from "../parts/format.js";
import { folded, heading, plainTable, properties, section } from "../parts/layout.js";
import { limitForm, limitTable, USER_LIMITS } from "./limits.js";
import { OF_USER, PermissionsPart } from "./permissions.js";
import { passwordBadge, tagList, userForm } from "./users.js";

export default {
  title: ({ name }) => `User ${name}`,

  mount(context) {
    patch(context.root, heading(`User ${context.params.name}`));
    const page = new UserPage(context);
    return () => page.refresh();
  },
};

class UserPage {
  constructor(context) {
    Object.assign(this, { context, name: context.params.name, parts: null });
  }

  async refresh() {
    const { context, name } = this;
    const { api } = context;
    const [user, permissions, topicPermissions, limits, connections] = await Promise.all([
      api.get(["users", name]),
      api.get(["users", name, "permissions"]),
      api.get(["users", name, "topic-permissions"]),
      api.get(["user-limits", name]),
      api.get(["connections", "username", name]),
    ]);
    this.parts ??= await this.makeParts(user);
    patch(
      context.root,
      heading(`User ${name}`, this.buttons(connections)),
      properties([
        ["Tags", tagList(user.tags)],
        ["Password", passwordBadge(user.password_hash)],
        ["You", name === context.user.name ? "You are logged in as this user." : null],
      ]),
      section("Permissions", this.parts.permissions.permissions(permissions)),
      folded("Topic permissions", this.parts.permissions.topicPermissions(topicPermissions)),
      folded("Why may it, or not?", this.parts.access.element()),
      section("Limits", limitTable(context, USER_LIMITS, limits, true), this.parts.limits.element),
      section("Connections", connectionTable(connections)),
      this.parts.change,
    );
  }

  async makeParts(user) {
    const { context, name } = this;
    const vhosts = await context.api.get(["vhosts"], { columns: "name" });
    const form = userForm(context, { name, tags: user.tags, saved: () => this.saved(form) });
    const names = vhosts.map((vhost) => vhost.name);
    return {
      permissions: new PermissionsPart(context, OF_USER, names),
      access: new AccessPart(context, names),
      limits: limitForm(context, USER_LIMITS, { name }),
      change: folded("Change password or tags", form.element),
    };
  }

  async saved(form) {
    form.fill({ password: "", again: "", how: "keep" });
    await this.context.refresh();
  }

  buttons(connections) {
    const close = connections.length === 0 ? null : h("button", { key: "close", type: "button", on: { click: () => this.closeAll(connections) } }, "Close connections …");
    return [close, h("button", { key: "delete", type: "button", on: { click: () => this.remove(connections) } }, "Delete …")];
  }

  async closeAll(connections) {
    const { context, name } = this;
    const isDone = await confirmAction({
      title: "Close connections of user",
      name,
      text: `${countedNoun(connections.length, "connection")} will be closed. Clients may reconnect.`,
      verb: "Close them",
      action: () => context.api.delete(["connections", "username", name], {}, { "X-Reason": "Closed via the management UI" }),
    });
    if (isDone) await context.refresh();
  }

  async remove(connections) {
    const { context, name } = this;
    const self = name === context.user.name ? "This is you: you will be logged out. " : "";
    const isDone = await confirmAction({
      title: "Delete user",
      name,
      text: `${self}Its permissions and limits are deleted, and ${countedNoun(connections.length, "connection")} will be closed.`,
      verb: "Delete",
      action: () => context.api.delete(["users", name]),
    });
    if (!isDone) return;
    context.notify(`User ${name} is deleted.`);
    context.navigate(address("users"));
  }
}

function connectionTable(connections) {
  if (connections.length === 0) return h("p", { class: "muted", key: "no connections" }, "This user has no connections open.");
  const rows = connections.map(({ name, vhost }) => ({ key: name, cells: [h("a", { href: address("connections", name) }, name), vhost] }));
  return plainTable("Connections", ["Name", "Virtual host"], rows);
}

const OPERATIONS = ["configure", "write", "read"];
const KINDS = ["queue", "exchange"];

/** A form for a permission, and what each authentication backend says about it. */
class AccessPart {
  /**
   * @param {Object} context context of the page; params.name is the user
   * @param {string[]} vhosts names of all virtual hosts
   */
  constructor(context, vhosts) {
    Object.assign(this, { context, found: null });
    this.form = new Form({
      fields: [
        { name: "vhost", label: "Virtual host", kind: "select", options: vhosts },
        { name: "operation", label: "Permission", kind: "select", options: OPERATIONS },
        { name: "kind", label: "Kind", kind: "select", options: KINDS },
        { name: "resource", label: "Name", required: true, hint: "A queue or an exchange; it need not exist." },
      ],
      submit: "Explain",
      keep: true,
      action: async ({ vhost, operation, kind, resource }) => {
        this.found = await context.api.get(["users", context.params.name, "access"], { vhost, operation, resource: `${kind}/${resource}` });
        await context.refresh();
        return "";
      },
    });
  }

  /** @returns {HTMLElement} the form and the last explanation */
  element() {
    return h("div", { key: "access" }, this.form.element, this.found === null ? null : explanation(this.found));
  }
}

function explanation({ user, vhost, operation, resource, allowed, decided_by: decidedBy, backends }) {
  const verb = allowed ? "may" : "may not";
  const by = decidedBy === null ? "No backend knows it." : `The backend ${decidedBy} decides.`;
  const rows = backends.map(({ backend, known, allowed: allows, reason }) => ({
    key: backend,
    cells: [backend, known ? (allows ? "allows it" : "refuses it") : "does not know the user", reason],
  }));
  return h(
    "div",
    { key: "explanation" },
    h("p", null, `User ${user} ${verb} ${operation} ${resource} in virtual host ${vhost}. ${by}`),
    plainTable("What the backends say", ["Backend", "Answer", "Why"], rows),
  );
}
