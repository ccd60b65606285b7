/** Page with the list of users. */

import { address } from "../parts/address.js";
import { badge } from "../parts/badge.js";
import { listColumns } from "../parts/columns.js";
import { h, patch } from "../parts/element.js";
import { exactNumber, nameText } from "../parts/format.js";
import { emptyState, folded, heading } from "../parts/layout.js";
import { Table } from "../parts/table.js";
import { userForm } from "./user_form.js";

export default {
  title: () => "Users",

  mount(context) {
    const { api, root } = context;
    const beside = { vhosts: new Map(), connections: new Map() };
    const table = new Table({
      id: "users",
      columns: columns(beside),
      sort: "name",
      needs: ["name"],
      rowKey: ({ name }) => name,
      load: (query) => api.get(["users"], query),
      empty: () => emptyState("There are no users.", "Add one below."),
    });
    const add = makeForm(context);
    patch(root, heading("Users"));
    return async () => {
      const [permissions, connections] = await Promise.all([api.get(["permissions"], { columns: "user,vhost" }), api.get(["connections"], { columns: "user", disable_stats: "true" })]);
      beside.vhosts = Map.groupBy(permissions, ({ user }) => user);
      beside.connections = Map.groupBy(connections, ({ user }) => user);
      await table.refresh();
      patch(root, heading("Users"), table.element, add);
    };
  },
};

function columns(beside) {
  const [name, tags, limits, password] = listColumns("users", {
    name: ({ name }) => h("a", { href: address("users", name) }, nameText(name)),
    tags: ({ tags }) => tagList(tags),
    limits: ({ limits }) => limitList(limits),
    password: ({ password_hash: hash }) => passwordBadge(hash),
  });
  // Of other documents.
  const vhosts = { key: "vhosts", label: "Can open virtual hosts", fields: [], cell: ({ name }) => vhostList(beside.vhosts.get(name)) };
  const connections = { key: "connections", label: "Connections", numeric: true, fields: [], cell: ({ name }) => exactNumber(beside.connections.get(name)?.length ?? 0) };
  return [name, tags, vhosts, limits, connections, password];
}

/**
 * Return tags as text.
 *
 * @param {string[]} tags tags of a user
 */
export function tagList(tags) {
  return tags.length === 0 ? h("span", { class: "muted" }, "none") : h("span", { class: "room" }, tags.join(", "));
}

/**
 * Make a badge that shows whether a user has a password.
 *
 * @param {string} hash password hash as in the API
 */
export function passwordBadge(hash) {
  return hash === "" ? badge("none", "Cannot log in with a password", "warning") : badge("set", "Has a password; only its hash is stored");
}

function vhostList(permissions) {
  if (permissions === undefined) return badge("none", "Cannot open any virtual host: set permissions on the user's page", "warning");
  return permissions.map(({ vhost }) => h("div", { key: vhost }, h("a", { href: address("vhosts", vhost) }, nameText(vhost))));
}

function limitList(limits) {
  const rows = Object.entries(limits);
  return rows.length === 0 ? null : rows.map(([name, value]) => h("div", { key: name, class: "number" }, `${name}: ${value < 0 ? "none" : exactNumber(value)}`));
}

function makeForm(context) {
  if (!context.user.may("administrator")) return null;
  const saved = async (name) => {
    form.reset();
    context.notify(`User ${name} is added. Give it permissions for a virtual host.`);
    context.navigate(address("users", name));
  };
  const form = userForm(context, { saved });
  return folded("Add a user", form.element);
}
