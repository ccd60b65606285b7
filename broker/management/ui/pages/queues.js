/** Page with the list of queues. */

import { address } from "../parts/address.js";
import { clientState } from "../parts/badge.js";
import { listColumns } from "../parts/columns.js";
import { h, patch } from "../parts/element.js";
import { VhostField } from "../parts/field.js";
import { Form } from "../parts/form.js";
import { nameText } from "../parts/format.js";
import { emptyState, folded, heading } from "../parts/layout.js";
import { Table } from "../parts/table.js";
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

const KINDS = { integer: "Number", boolean: "Boolean", string: "String", age: "String" };
const TYPE_ARGUMENT = "x-queue-type";
/** Value of the API for a virtual host without its own default queue type. */
const UNSET = "undefined";

/** Form in a section that is closed initially; `element` is created once. */
class DeclarationForm {
  /** @param {Object} context context of the page */
  constructor(context) {
    this.context = context;
    this.known = null;
    this.vhost = new VhostField(context);
    this.form = new Form({
      fields: [
        this.vhost.description,
        { name: "type", label: "Type", kind: "select", options: ["classic", "quorum", "stream"], value: "classic" },
        { name: "name", label: "Name", required: true },
        { name: "transient", label: "Transient", kind: "checkbox", hint: "Deleted on a restart, with all its messages." },
        { name: "auto_delete", label: "Auto-delete", kind: "checkbox", hint: "Deleted when its last consumer is cancelled." },
        { name: "arguments", label: "Arguments", kind: "arguments", hint: "Arguments cannot be changed later; policies can." },
      ],
      submit: "Add queue",
      action: (values) => this.declare(values),
    });
    this.vhost.follow(this.form);
    this.fields = Object.fromEntries(this.form.fields.map((field) => [field.name, field]));
    this.fields.type.control.addEventListener("change", () => this.showTypeOptions());
    // The fields are reset after the event.
    this.form.element.addEventListener("reset", () => queueMicrotask(() => this.showTypeOptions()));
    this.element = folded("Add a queue", this.form.element);
    this.element.addEventListener("toggle", () => this.open());
    this.showTypeOptions();
  }

  /** Update the options. Must be called on every refresh. */
  update() {
    this.vhost.update();
  }

  async open() {
    this.update();
    if (!this.element.open || this.known !== null) return;
    // The form works without the suggestions.
    this.known = await this.context.api.get(["queue-arguments"]).catch(() => null);
    this.showTypeOptions();
  }

  /** Show the options of the type: queues of other types than classic are always durable and not auto-delete. */
  showTypeOptions() {
    const type = this.fields.type.control.value;
    for (const name of ["transient", "auto_delete"]) this.fields[name].row.hidden = type !== "classic";
    const known = this.known ?? [];
    const fitting = known.filter(({ argument, queue_types: types }) => argument !== TYPE_ARGUMENT && types.includes(type));
    this.fields.arguments.editor.offer(fitting.map(suggestion));
  }

  async declare({ vhost, type, name, transient, auto_delete: autoDelete, arguments: args }) {
    const isClassic = type === "classic";
    // The type is omitted if it is the default, so that applications can redeclare the queue without it.
    const needsTypeArgument = !isClassic || (await this.defaultType(vhost)) !== type;
    const properties = isClassic ? { durable: !transient, auto_delete: autoDelete } : { durable: true, auto_delete: false };
    const body = { ...properties, arguments: needsTypeArgument ? { ...args, [TYPE_ARGUMENT]: type } : args };
    await this.context.api.put(["queues", vhost, name], body);
    await this.context.refresh();
    return `Queue ${name} has been added.`;
  }

  /** Return the default queue type of a virtual host. */
  async defaultType(vhost) {
    const vhosts = await this.context.api.get(["vhosts"], { columns: "name,default_queue_type" });
    const type = vhosts.find(({ name }) => name === vhost)?.default_queue_type ?? UNSET;
    return type === UNSET ? "classic" : type;
  }
}

function suggestion({ argument, type, minimum, maximum, values, unit, summary }) {
  const range = maximum === null ? `${minimum ?? 0} or more` : `${minimum} to ${maximum}`;
  const kinds = { integer: `${range} ${unit ?? ""}`.trim(), boolean: "true or false", age: "for example 7D", string: "text" };
  const accepted = values?.join(", ") ?? kinds[type];
  return {
    key: argument,
    label: argument.replace(/^x-/, ""),
    type: KINDS[type],
    value: type === "boolean" ? "true" : "",
    hint: `${summary} (${accepted})`,
    placeholder: accepted,
  };
}
