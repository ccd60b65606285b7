/** Page with the list of exchanges. */

import { listColumns } from "../parts/columns.js";
import { patch } from "../parts/element.js";
import { VhostField } from "../parts/field.js";
import { Form } from "../parts/form.js";
import { emptyState, folded, heading } from "../parts/layout.js";
import { EXCHANGE_TYPES } from "../parts/lists.js";
import { Table } from "../parts/table.js";
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

const ALTERNATE = { key: "alternate-exchange", label: "Alternate exchange", hint: "Name of the exchange that receives messages that this one cannot route" };
/** Arguments of single types, by type. */
const ARGUMENTS = {
  "x-consistent-hash": [
    { key: "hash-header", label: "Hash a header", hint: "Name of the header that decides which queue gets a message, instead of the routing key" },
    { key: "hash-property", label: "Hash a property", hint: "message_id, correlation_id or timestamp: decides which queue gets a message, instead of the routing key" },
  ],
  "x-delayed-message": [
    { key: "x-delayed-type", label: "Type inside", value: "direct", hint: "Type that routes the messages when they are due: any other exchange type" },
  ],
  "x-message-deduplication": [
    { key: "x-cache-size", label: "Cache size", type: "Number", value: "100000", hint: "Maximum number of header values that are remembered; required" },
    { key: "x-cache-ttl", label: "Cache TTL", type: "Number", hint: "Milliseconds for which a value is remembered; by default until newer ones take its place" },
    { key: "x-cache-persistence", label: "Cache persistence", hint: "memory, or disk: whether what is remembered survives a restart" },
  ],
  "x-recent-history": [
    { key: "x-recent-history-length", label: "History length", type: "Number", hint: "Number of messages that a new binding gets; 20 by default" },
  ],
};

/** Form in a section that is closed initially; `element` is created once. */
class ExchangeDeclaration {
  /** @param {Object} context context of the page */
  constructor(context) {
    this.context = context;
    this.vhost = new VhostField(context);
    this.form = new Form({
      fields: [
        this.vhost.description,
        { name: "name", label: "Name", required: true, check: checkName },
        { name: "type", label: "Type", kind: "select", options: EXCHANGE_TYPES, value: "direct" },
        { name: "durable", label: "Durability", kind: "select", options: [{ value: "true", label: "durable" }, { value: "false", label: "transient" }], value: "true", hint: "Durable exchanges survive a restart." },
        { name: "auto_delete", label: "Auto-delete", kind: "checkbox", hint: "Deleted when the last binding from it is removed." },
        { name: "internal", label: "Internal", kind: "checkbox", hint: "Accepts messages from other exchanges only." },
        { name: "arguments", label: "Arguments", kind: "arguments", suggestions: [ALTERNATE] },
      ],
      submit: "Add exchange",
      action: (values) => this.declare(values),
    });
    this.vhost.follow(this.form);
    const [type, given] = ["type", "arguments"].map((wanted) => this.form.fields.find(({ name }) => name === wanted));
    type.control.addEventListener("change", () => given.editor.offer([ALTERNATE, ...(ARGUMENTS[type.control.value] ?? [])]));
    this.element = folded("Add an exchange", this.form.element);
  }

  /** Update the options of the virtual host. */
  update() {
    this.vhost.update();
  }

  async declare({ vhost, name, durable, ...others }) {
    await this.context.api.put(["exchanges", vhost, name], { durable: durable === "true", ...others });
    await this.context.refresh();
    return `Exchange ${name} has been added.`;
  }
}

function checkName(name) {
  return new TextEncoder().encode(name).length > 255 ? "This must be 255 bytes or less." : null;
}
