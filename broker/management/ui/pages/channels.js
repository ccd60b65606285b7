/** The list of channels. */

import { address } from "../parts/address.js";
import { h, patch } from "../parts/element.js";
import { emptyState, heading } from "../parts/layout.js";
import { Table } from "../parts/table.js";
import { channelColumns } from "./channel_columns.js";

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
