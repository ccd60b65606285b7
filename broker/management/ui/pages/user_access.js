/** Part of a user's page that explains what the user may do. */

import { h } from "../parts/element.js";
import { Form } from "../parts/form.js";
import { plainTable } from "../parts/layout.js";

const OPERATIONS = ["configure", "write", "read"];
const KINDS = ["queue", "exchange"];

/** A form for a permission, and what each authentication backend says about it. */
export class AccessPart {
  /**
   * @param {Object} context context of the page; params.name is the user
   * @param {string[]} vhosts names of all virtual hosts
   */
  constructor(context, vhosts) {
    Object.assign(this, { context, found: null });
    this.form = new Form({
      fields: [
        { name: "vhost", label: "Virtual host", kind: "select", options: vhosts },
        { name: "operation", label: "Permission", kind: "select", options: OPERATIONS },
        { name: "kind", label: "Kind", kind: "select", options: KINDS },
        { name: "resource", label: "Name", required: true, hint: "A queue or an exchange; it need not exist." },
      ],
      submit: "Explain",
      keep: true,
      action: async ({ vhost, operation, kind, resource }) => {
        this.found = await context.api.get(["users", context.params.name, "access"], { vhost, operation, resource: `${kind}/${resource}` });
        await context.refresh();
        return "";
      },
    });
  }

  /** @returns {HTMLElement} the form and the last explanation */
  element() {
    return h("div", { key: "access" }, this.form.element, this.found === null ? null : explanation(this.found));
  }
}

function explanation({ user, vhost, operation, resource, allowed, decided_by: decidedBy, backends }) {
  const verb = allowed ? "may" : "may not";
  const by = decidedBy === null ? "No backend knows it." : `The backend ${decidedBy} decides.`;
  const rows = backends.map(({ backend, known, allowed: allows, reason }) => ({
    key: backend,
    cells: [backend, known ? (allows ? "allows it" : "refuses it") : "does not know the user", reason],
  }));
  return h(
    "div",
    { key: "explanation" },
    h("p", null, `User ${user} ${verb} ${operation} ${resource} in virtual host ${vhost}. ${by}`),
    plainTable("What the backends say", ["Backend", "Answer", "Why"], rows),
  );
}
