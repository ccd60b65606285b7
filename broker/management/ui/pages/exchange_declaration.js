/** Form that adds an exchange. */

import { Form } from "../parts/form.js";
import { folded } from "../parts/layout.js";
import { VhostField } from "../parts/vhost_field.js";

const TYPES = ["direct", "fanout", "topic", "headers"];
const ALTERNATE = { key: "alternate-exchange", label: "Alternate exchange", hint: "Name of the exchange that receives messages that this one cannot route" };

/** Form in a section that is closed initially; `element` is created once. */
export class ExchangeDeclaration {
  /** @param {Object} context context of the page */
  constructor(context) {
    this.context = context;
    this.vhost = new VhostField(context);
    this.form = new Form({
      fields: [
        this.vhost.description,
        { name: "name", label: "Name", required: true, check: checkName },
        { name: "type", label: "Type", kind: "select", options: TYPES, value: "direct" },
        { name: "durable", label: "Durability", kind: "select", options: [{ value: "true", label: "durable" }, { value: "false", label: "transient" }], value: "true", hint: "Durable exchanges survive a restart." },
        { name: "auto_delete", label: "Auto-delete", kind: "checkbox", hint: "Deleted when the last binding from it is removed." },
        { name: "internal", label: "Internal", kind: "checkbox", hint: "Accepts messages from other exchanges only." },
        { name: "arguments", label: "Arguments", kind: "arguments", suggestions: [ALTERNATE] },
      ],
      submit: "Add exchange",
      action: (values) => this.declare(values),
    });
    this.vhost.follow(this.form);
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
