/** The virtual host as a field of a form. */

import { h, patch } from "./element.js";

/** A choice of those that the user sees, at first the one that is chosen for the pages; hidden if there is only one. */
export class VhostField {
  /** @param {Object} context of the page */
  constructor(context) {
    this.context = context;
    this.description = { name: "vhost", label: "Virtual host", kind: "select", options: [] };
  }

  /** Say which form has it. @param {import("./form.js").Form} form made with the `description` among its fields */
  follow(form) {
    Object.assign(this, form.fields.find(({ name }) => name === "vhost"));
    // A reset comes before the fields have their values back.
    form.element.addEventListener("reset", () => queueMicrotask(() => this.settle()));
  }

  /** Bring the choice up to date; to be called at every refresh. */
  update() {
    const { vhosts, vhost } = this.context;
    const isFirst = this.control.options.length === 0;
    patch(this.control, vhosts.map((name) => h("option", { key: name, value: name }, name)));
    this.row.hidden = vhosts.length < 2;
    if (isFirst || vhost !== this.followed) this.settle();
  }

  settle() {
    const { vhosts, vhost } = this.context;
    this.followed = vhost;
    this.control.value = vhost !== "" ? vhost : vhosts.includes("/") ? "/" : (vhosts[0] ?? "");
  }
}
