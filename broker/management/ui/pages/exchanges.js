/** Page with the list of exchanges. */

import { listColumns } from "../parts/columns.js";
import { patch } from "../parts/element.js";
import { emptyState, heading } from "../parts/layout.js";
import { Table } from "../parts/table.js";
import { ExchangeDeclaration } from "./exchange_declaration.js";
import { exchangeFeatures, exchangeLink, exchangeType, policyLink } from "./exchange_features.js";

const COLUMNS = listColumns("exchanges", {
  name: ({ vhost, name }) => exchangeLink(vhost, name),
  type: ({ type }) => exchangeType(type),
  features: exchangeFeatures,
  policy: policyLink,
});

function emptyList() {
  return emptyState("There are no exchanges that you may see.", "Choose another virtual host above, or ask an administrator for permissions in this one.");
}

export default {
  title: () => "Exchanges",

  mount(context) {
    const table = new Table({
      id: "exchanges",
      columns: COLUMNS,
      needs: ["name", "vhost"],
      rowKey: ({ vhost, name }) => JSON.stringify([vhost, name]),
      load: (query) => context.api.get(context.vhost === "" ? ["exchanges"] : ["exchanges", context.vhost], query),
      empty: emptyList,
    });
    const declaration = new ExchangeDeclaration(context);
    patch(context.root, heading("Exchanges"), table.element, declaration.element);
    return async () => {
      declaration.update();
      await table.refresh();
    };
  },
};
