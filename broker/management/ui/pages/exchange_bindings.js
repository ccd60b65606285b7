/** Bindings of an exchange as source and as destination, and the form that adds bindings. */

import { address } from "../parts/address.js";
import { confirmAction } from "../parts/dialog.js";
import { h } from "../parts/element.js";
import { nameText } from "../parts/format.js";
import { Form } from "../parts/form.js";
import { emptyState, valueTable } from "../parts/layout.js";
import { Table } from "../parts/table.js";
import { exchangeLink } from "./exchange_features.js";

const NEEDS = ["source", "vhost", "destination", "destination_type", "routing_key", "properties_key"];
/** Meaning of the routing key, by type of the exchange. */
const HINTS = {
  direct: "Messages with exactly this routing key match.",
  fanout: "Ignored: all messages match.",
  topic: "A pattern: * matches one word, # for any number of words, as in orders.*.eu",
  headers: "Ignored: the arguments determine which headers a message must have.",
  "x-consistent-hash": "A weight: a destination with 2 gets twice as many messages as one with 1.",
  "x-modulus-hash": "Ignored: a hash of the message's routing key chooses one of the bindings.",
  "x-random": "Ignored: each message goes to one binding, chosen at random.",
  "x-local-random": "Must be empty: each message goes to one queue, chosen at random.",
  "x-recent-history": "Ignored: all messages match, and a new binding gets the last ones.",
};
const MATCH = [
  { key: "x-match", label: "x-match: all", value: "all", hint: "A message must have all headers that the other arguments name" },
  { key: "x-match", label: "x-match: any", value: "any", hint: "A message must have at least one of the headers that the other arguments name" },
];

/** Make the table of bindings from the exchange. @returns {Table} */
export function bindingsFrom(context, name) {
  return bindingTable(context, name, "source", {
    end: { key: "destination", label: "To", sort: "destination", fixed: true, cell: target },
    empty: () => emptyState("Nothing is bound to this exchange.", "Messages published to it are lost unless it has an alternate exchange. Add a binding below."),
  });
}

/** Make the table of bindings to the exchange. @returns {Table} */
export function bindingsTo(context, name) {
  return bindingTable(context, name, "destination", {
    end: { key: "source", label: "From", sort: "source", fixed: true, cell: ({ vhost, source }) => exchangeLink(vhost, source) },
    empty: () => emptyState("No other exchange is bound to this one.", "Add a binding on the page of the other exchange."),
  });
}

function bindingTable(context, name, side, { end, empty }) {
  const { vhost } = context.params;
  return new Table({
    id: `bindings ${side}`,
    // Each exchange has its own filter and page.
    place: JSON.stringify([side, vhost, name]),
    caption: `bindings ${side === "source" ? "from" : "to"} this exchange`,
    one: `binding ${side === "source" ? "from" : "to"} this exchange`,
    filterLabel: "Filter by name or routing key",
    filtered: side === "source",
    columns: [
      end,
      { key: "routing_key", label: "Routing key", sort: "routing_key", cell: ({ routing_key: key }) => key },
      { key: "arguments", label: "Arguments", cell: ({ arguments: args }) => valueTable(args) },
      { key: "unbind", label: "Action", fields: [], fixed: true, cell: (binding) => unbindButton(context, binding) },
    ],
    needs: NEEDS,
    rowKey: ({ source, destination_type: kind, destination, properties_key: key }) => JSON.stringify([source, kind, destination, key]),
    load: (query) => context.api.get(["exchanges", vhost, name, "bindings", side], query),
    empty,
  });
}

function target({ vhost, destination, destination_type: kind }) {
  if (kind === "exchange") return [exchangeLink(vhost, destination), h("div", { class: "muted" }, "exchange")];
  return h("a", { href: address("queues", vhost, destination) }, nameText(destination));
}

function unbindButton(context, binding) {
  return h("button", { type: "button", class: "quiet", on: { click: () => unbind(context, binding) } }, "Unbind …");
}

async function unbind({ api, refresh, notify }, { vhost, source, destination, destination_type: kind, routing_key: key, properties_key: props }) {
  const isDone = await confirmAction({
    title: "Remove binding",
    name: `${source} → ${destination}`,
    text: key === "" ? "It has no routing key." : `Routing key: ${key}`,
    verb: "Unbind",
    action: () => api.delete(["bindings", vhost, "e", source, kind[0], destination, props]),
  });
  if (!isDone) return;
  notify("The binding has been removed.");
  await refresh();
}

/** Form that binds a queue or an exchange to the exchange of the page; `element` is created once. */
export class BindingForm {
  /**
   * @param {Object} context context of the page
   * @param {string} name name of the exchange
   */
  constructor(context, name) {
    this.context = context;
    this.name = name;
    this.form = new Form({
      fields: [
        { name: "kind", label: "To", kind: "select", options: [{ value: "q", label: "queue" }, { value: "e", label: "exchange" }], value: "q" },
        { name: "destination", label: "Name", required: true },
        { name: "key", label: "Routing key" },
        { name: "arguments", label: "Arguments", kind: "arguments" },
      ],
      submit: "Bind",
      action: (values) => this.bind(values),
    });
    this.element = this.form.element;
  }

  /** Show the meaning of the routing key. @param {string} type type of the exchange */
  describe(type) {
    if (type === this.type) return;
    this.type = type;
    this.element.querySelector("[id$='-key-hint']").textContent = HINTS[type] ?? "";
    this.form.fields.find(({ name }) => name === "arguments").editor.offer(type === "headers" ? MATCH : []);
  }

  async bind({ kind, destination, key, arguments: args }) {
    const { api, params, refresh } = this.context;
    await api.post(["bindings", params.vhost, "e", this.name, kind, destination], { routing_key: key, arguments: args });
    await refresh();
    return `${destination} is bound.`;
  }
}
