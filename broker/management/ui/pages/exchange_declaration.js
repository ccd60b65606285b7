/** Adding an exchange. */

import { Form } from "../parts/form.js";
import { folded } from "../parts/layout.js";
import { VhostField } from "../parts/vhost_field.js";

const TYPES = ["direct", "fanout", "topic", "headers"];
const ALTERNATE = { key: "alternate-exchange", label: "Alternate exchange", hint: "Name of the exchange that gets what this one cannot route" };

/** The form, closed at first; `element` stays the same. */
export class ExchangeDeclaration {
  /** @param {Object} context of the page */
  constructor(context) {
    this.context = context;
    this.vhost = new VhostField(context);
    this.form = new Form({
      fields: [
        this.vhost.description,
        { name: "name", label: "Name", required: true, check: checkName },
        { name: "type", label: "Type", kind: "select", options: TYPES, value: "direct" },
        { name: "durable", label: "Durability", kind: "select", options: [{ value: "true", label: "durable" }, { value: "false", label: "transient" }], value: "true", hint: "Durable exchanges are there after a restart." },
        { name: "auto_delete", label: "Auto-delete", kind: "checkbox", hint: "Deleted when the last binding from it goes." },
        { name: "internal", label: "Internal", kind: "checkbox", hint: "Takes messages from other exchanges only." },
        { name: "arguments", label: "Arguments", kind: "arguments", suggestions: [ALTERNATE] },
      ],
      submit: "Add exchange",
      action: (values) => this.declare(values),
    });
    this.vhost.follow(this.form);
    this.element = folded("Add an exchange", this.form.element);
  }

  /** Bring the choice of the virtual host up to date. */
  update() {
    this.vhost.update();
  }

  async declare({ vhost, name, durable, ...others }) {
    await this.context.api.put(["exchanges", vhost, name], { durable: durable === "true", ...others });
    await this.context.refresh();
    return `Exchange ${name} is there.`;
  }
}

function checkName(name) {
  return new TextEncoder().encode(name).length > 255 ? "This has to be 255 bytes or less." : null;
}
