/** Page with the list of queues. */

import { address } from "../parts/address.js";
import { clientState } from "../parts/badge.js";
import { listColumns } from "../parts/columns.js";
import { h, patch } from "../parts/element.js";
import { nameText } from "../parts/format.js";
import { emptyState, heading } from "../parts/layout.js";
import { Table } from "../parts/table.js";
import { DeclarationForm } from "./queue_declaration.js";
import { features, nearestFill, policyLink } from "./queue_features.js";

function columns(context) {
  return listColumns("queues", {
    vhost: { isRedundant: () => context.vhost !== "" || context.vhosts.length < 2 },
    name: ({ vhost, name }) => h("a", { href: address("queues", vhost, name) }, nameText(name)),
    fill: (queue) => nearestFill(queue.fill),
    state: clientState,
    policy: ({ vhost, policy }) => policyLink(vhost, policy),
    features: (queue) => h("span", { class: "room" }, features(queue)),
    operator_policy: (queue) => policyLink(queue.vhost, queue.operator_policy, true),
  });
}

function emptyList() {
  return emptyState("There are no queues here.", "Applications declare the queues that they need, or you can add one below.");
}

export default {
  title: () => "Queues",

  async mount(context) {
    if (context.vhosts.length === 0) await context.reloadVhosts();
    const table = new Table({
      id: "queues",
      columns: columns(context),
      needs: ["name", "vhost"],
      rowKey: ({ vhost, name }) => JSON.stringify([vhost, name]),
      load: (query) => context.api.get(context.vhost === "" ? ["queues"] : ["queues", context.vhost], query),
      empty: emptyList,
      state: context.query.get("sort") === "fill" ? { sort: "fill", reverse: true, name: "", page: 1 } : {},
    });
    const declaration = new DeclarationForm(context);
    patch(context.root, heading("Queues"), table.element, declaration.element);
    return async () => {
      declaration.update();
      await table.refresh();
    };
  },
};
