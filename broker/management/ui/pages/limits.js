/** Page with the limits of all virtual hosts and users. */

import { address } from "../parts/address.js";
import { confirmAction } from "../parts/dialog.js";
import { h, patch } from "../parts/element.js";
import { Form } from "../parts/form.js";
import { exactNumber, nameText } from "../parts/format.js";
import { heading, plainTable, section } from "../parts/layout.js";

/**
 * Kind of limits.
 *
 * @typedef {Object} LimitKind
 * @property {string} path resource of the API
 * @property {"user"|"vhost"} subject kind of object that has the limits
 * @property {string} label label of the subject
 * @property {string} page first segment of the subject's address
 * @property {Array<{value: string, label: string}>} limits
 */

/** @type {LimitKind} */
export const VHOST_LIMITS = {
  path: "vhost-limits",
  subject: "vhost",
  label: "Virtual host",
  page: "vhosts",
  limits: [{ value: "max-connections", label: "Connections (max-connections)" }, { value: "max-queues", label: "Queues (max-queues)" }],
};

/** @type {LimitKind} */
export const USER_LIMITS = {
  path: "user-limits",
  subject: "user",
  label: "User",
  page: "users",
  limits: [{ value: "max-connections", label: "Connections (max-connections)" }, { value: "max-channels", label: "Channels (max-channels)" }],
};

/**
 * Make the form that sets a limit.
 *
 * @param {Object} context context of the page
 * @param {LimitKind} kind
 * @param {{names?: string[], name?: string}} subjects `names`: subjects to choose from; `name`: the only subject
 * @returns {Form}
 */
export function limitForm(context, kind, { names = [], name }) {
  return new Form({
    fields: [
      ...(name === undefined ? [{ name: "subject", label: kind.label, kind: "select", options: names }] : []),
      { name: "limit", label: "Limit", kind: "select", options: kind.limits },
      { name: "value", label: "Value", kind: "number", required: true, hint: "0 allows none; a negative number means no limit." },
    ],
    submit: "Set limit",
    action: async ({ subject = name, limit, value }) => {
      await context.api.put([kind.path, subject, limit], { value });
      await context.refresh();
      return `${limit} of ${subject} is set.`;
    },
  });
}

/**
 * Make a table of limits.
 *
 * @param {Object} context context of the page
 * @param {LimitKind} kind
 * @param {Array<{value: Object<string, number>}>} found limits as in the API
 * @param {boolean} isOfOne whether all limits belong to one subject, which is not shown then
 */
export function limitTable(context, kind, found, isOfOne = false) {
  const rows = found.flatMap((each) => Object.entries(each.value).map(([limit, value]) => row(context, kind, each[kind.subject], limit, value, isOfOne)));
  if (rows.length === 0) return h("p", { class: "muted", key: `no ${kind.path}` }, "No limits are set.");
  const headings = [...(isOfOne ? [] : [kind.label]), "Limit", { label: "Value", numeric: true }];
  return plainTable(`${kind.label} limits`, context.user.may("administrator") ? [...headings, "Actions"] : headings, rows);
}

function row(context, kind, name, limit, value, isOfOne) {
  const shown = value < 0 ? "no limit" : exactNumber(value);
  const isLinked = context.user.may("administrator");
  const link = isOfOne ? [] : [isLinked ? h("a", { href: address(kind.page, name) }, nameText(name)) : nameText(name)];
  return { key: JSON.stringify([name, limit]), cells: [...link, h("span", { class: "number" }, limit), shown, ...(isLinked ? [clearButton(context, kind, name, limit)] : [])] };
}

function clearButton(context, kind, name, limit) {
  const clear = async () => {
    const isDone = await confirmAction({
      title: `Clear ${limit}`,
      name,
      text: `This ${kind.label.toLowerCase()} will no longer have this limit.`,
      verb: "Clear",
      action: () => context.api.delete([kind.path, name, limit]),
    });
    if (isDone) await context.refresh();
  };
  return h("button", { type: "button", class: "quiet", "aria-label": `Clear ${limit} of ${name}`, on: { click: clear } }, "Clear …");
}

export default {
  title: () => "Limits",

  mount(context) {
    const { api, root, user } = context;
    const mayChange = user.may("administrator");
    let forms = null;
    patch(root, heading("Limits"));
    return async () => {
      const [ofVhosts, ofUsers] = await Promise.all([api.get(["vhost-limits"]), api.get(["user-limits"])]);
      if (mayChange) forms ??= await makeForms(context);
      const chosen = ofVhosts.filter(({ vhost }) => context.vhost === "" || vhost === context.vhost);
      patch(
        root,
        heading("Limits"),
        section("Virtual hosts", limitTable(context, VHOST_LIMITS, chosen), forms?.vhosts.element),
        section("Users", limitTable(context, USER_LIMITS, ofUsers), forms?.users.element),
        mayChange ? null : h("p", { class: "muted section" }, "Setting limits requires the tag administrator."),
      );
    };
  },
};

async function makeForms(context) {
  const columns = { columns: "name" };
  const [vhosts, users] = await Promise.all([context.api.get(["vhosts"], columns), context.api.get(["users"], columns)]);
  const names = (found) => found.map(({ name }) => name);
  return {
    vhosts: limitForm(context, VHOST_LIMITS, { names: names(vhosts) }),
    users: limitForm(context, USER_LIMITS, { names: names(users) }),
  };
}
