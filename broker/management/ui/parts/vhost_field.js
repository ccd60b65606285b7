/** Form field for the virtual host. */

import { h, patch } from "./element.js";

/** Select for the virtual hosts that the user sees. The default is that of the pages; hidden if there is only one. */
export class VhostField {
  /** @param {Object} context context of the page */
  constructor(context) {
    this.context = context;
    this.description = { name: "vhost", label: "Virtual host", kind: "select", options: [] };
  }

  /** Attach to a form. @param {import("./form.js").Form} form form that has `description` among its fields */
  follow(form) {
    Object.assign(this, form.fields.find(({ name }) => name === "vhost"));
    // The reset event is sent before the fields are reset.
    form.element.addEventListener("reset", () => queueMicrotask(() => this.selectDefault()));
  }

  /** Update the options. Must be called on every refresh. */
  update() {
    const { vhosts, vhost } = this.context;
    const isFirst = this.control.options.length === 0;
    patch(this.control, vhosts.map((name) => h("option", { key: name, value: name }, name)));
    this.row.hidden = vhosts.length < 2;
    if (isFirst || vhost !== this.followed) this.selectDefault();
  }

  selectDefault() {
    const { vhosts, vhost } = this.context;
    this.followed = vhost;
    this.control.value = vhost !== "" ? vhost : vhosts.includes("/") ? "/" : (vhosts[0] ?? "");
  }
}
