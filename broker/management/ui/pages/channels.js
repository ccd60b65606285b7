/** The list of channels. */

import { address } from "../parts/address.js";
import { badge, clientState } from "../parts/badge.js";
import { listColumns } from "../parts/columns.js";
import { h, patch } from "../parts/element.js";
import { emptyState, heading } from "../parts/layout.js";
import { Table } from "../parts/table.js";

function emptyList(context) {
  if (!context.user.may("monitoring")) return emptyState("You have no channels.", "The tag monitoring or administrator is required to see channels of other users.");
  return emptyState("No channel is open.", "Clients open them on their ", h("a", { href: address("connections") }, "connections"), ".");
}

export default {
  title: () => "Channels",

  mount(context) {
    const table = new Table({
      id: "channels",
      columns: channelColumns(),
      needs: ["name"],
      rowKey: ({ name }) => name,
      load: (query) => context.api.get(context.vhost === "" ? ["channels"] : ["vhosts", context.vhost, "channels"], query),
      empty: () => emptyList(context),
    });
    patch(context.root, heading("Channels"), table.element);
    return () => table.refresh();
  },
};

/**
 * Return the columns.
 *
 * @param {{within?: "connection"}} [place] `within`: omits the columns that all channels of a connection have in common
 * @returns {import("../parts/table.js").Column[]}
 */
export function channelColumns({ within } = {}) {
  const left = within === "connection" ? ["vhost", "name", "user"] : ["number"];
  const shown = {
    name: named,
    number: ({ name, number: of }) => h("a", { href: address("channels", name) }, `(${of})`),
    mode: channelMode,
    state: clientState,
    prefetch: (channel) => channelPrefetch(channel, ""),
  };
  return listColumns("channels", shown).filter(({ key }) => !left.includes(key));
}

function named({ name, user_provided_name: providedName }) {
  const link = h("a", { href: address("channels", name) }, name);
  return providedName === undefined ? link : [link, h("div", { class: "muted" }, providedName)];
}

/** Make badges for confirm and transactional mode. @param {Object} channel channel object of the API */
export function channelMode({ confirm, transactional }) {
  return [
    confirm ? badge("C", "confirm: the broker confirms published messages") : null,
    transactional ? badge("T", "transactional: publishes and acknowledgements count once they are committed") : null,
  ];
}

/**
 * Return the prefetch limits of a channel as text.
 *
 * @param {Object} channel channel object of the API
 * @param {string} [suffix] text after the limit per consumer; empty in narrow columns
 */
export function channelPrefetch({ prefetch_count: each, global_prefetch_count: all }, suffix = " per consumer") {
  const parts = [each > 0 ? `${each}${suffix}` : null, all > 0 ? `${all} global` : null].filter((part) => part !== null);
  return parts.length > 0 ? parts.join(", ") : h("span", { class: "muted" }, "no limit");
}
