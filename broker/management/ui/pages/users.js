/** Page with the list of users. */

import { address } from "../parts/address.js";
import { badge } from "../parts/badge.js";
import { listColumns } from "../parts/columns.js";
import { h, patch } from "../parts/element.js";
import { Form } from "../parts/form.js";
import { exactNumber, nameText } from "../parts/format.js";
import { emptyState, folded, heading } from "../parts/layout.js";
import { Table } from "../parts/table.js";

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

const TAGS = [
  ["administrator", "Full access."],
  ["monitoring", "Can see all virtual hosts, connections and the node."],
  ["policymaker", "Can set policies in its virtual hosts."],
  ["management", "Can log in to this UI and see its virtual hosts."],
];
const SET = { value: "set", label: "Set a password" };
const NONE = { value: "none", label: "No password: login with a password is disabled" };
const KEEP = { value: "keep", label: "Keep the password" };

/**
 * Make the form.
 *
 * @param {Object} context context of the page
 * @param {{name?: string, tags?: string[], saved: function(string): Promise}} given `name` and `tags` of the user to
 *   change; `saved`: called with its name after it was saved
 * @returns {Form}
 */
export function userForm(context, { name, tags = [], saved }) {
  const known = TAGS.map(([tag]) => tag);
  return new Form({
    fields: [
      ...(name === undefined ? [{ name: "name", label: "User name", required: true }] : []),
      { name: "how", label: "Log-in", kind: "select", options: name === undefined ? [SET, NONE] : [KEEP, SET, NONE] },
      { name: "password", label: "Password", kind: "password", check: (value, { how }) => checkPassword(value, how) },
      { name: "again", label: "Password again", kind: "password", check: (value, values) => (value === values.password ? null : "The passwords do not match.") },
      ...TAGS.map(([tag, hint]) => ({ name: `tag ${tag}`, label: tag, kind: "checkbox", value: tags.includes(tag), hint })),
      { name: "others", label: "Other tags", value: tags.filter((tag) => !known.includes(tag)).join(", "), hint: "Separated by commas; they have no meaning for the broker." },
    ],
    submit: name === undefined ? "Add user" : "Save",
    keep: true,
    action: async (values) => {
      const chosen = known.filter((tag) => values[`tag ${tag}`]);
      const username = name ?? values.name;
      await put(context, username, values, [...chosen, ...values.others.split(",").map((tag) => tag.trim()).filter(Boolean)]);
      await saved(username);
      return `User ${username} is saved.`;
    },
  });
}

function checkPassword(value, how) {
  if (how === "set") return value === "" ? "Password is missing." : null;
  return value === "" ? null : "The password is not used unless you choose to set a password.";
}

/** Save a user. The API replaces password and tags together, so an existing password is kept by sending its hash. */
async function put({ api }, name, { how, password }, tags) {
  const body = { tags };
  if (how === "set") body.password = password;
  if (how === "none") body.password_hash = "";
  if (how === "keep") {
    const user = await api.get(["users", name]);
    Object.assign(body, { password_hash: user.password_hash, hashing_algorithm: user.hashing_algorithm });
  }
  await api.put(["users", name], body);
}
