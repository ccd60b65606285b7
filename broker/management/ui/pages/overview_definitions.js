/** Export and import of definitions. */

import { apiPath } from "../parts/api.js";
import { confirmAction } from "../parts/dialog.js";
import { h } from "../parts/element.js";
import { Form } from "../parts/form.js";
import { folded } from "../parts/layout.js";

/**
 * Make the section that exports and imports definitions.
 *
 * @param {Object} context context of the page
 * @returns {HTMLElement} section, to be created once
 */
export function definitionsSection(context) {
  const form = new Form({
    fields: [{ name: "file", label: "Definitions file", kind: "file", accept: ".json,application/json", required: true, hint: "Objects in the file are added or replaced; nothing is deleted." }],
    submit: "Import …",
    action: ({ file }) => importFile(context, file),
  });
  const download = h("a", { class: "button", href: exportPath(context), download: "", on: { click: (event) => updateLink(event.currentTarget, context) } }, "Export definitions");
  const made = folded("Definitions", h("p", null, "Virtual hosts, users, permissions, exchanges, queues, bindings and policies, of the chosen virtual host or of all virtual hosts. Users are exported with their password hashes."), h("p", null, download), form.element);
  return made;
}

function exportPath({ vhost }) {
  return apiPath(vhost === "" ? ["definitions"] : ["definitions", vhost]);
}

/** Set the link's address to the currently chosen virtual host. */
function updateLink(link, context) {
  const day = new Date().toISOString().slice(0, 10);
  link.setAttribute("href", exportPath(context));
  link.setAttribute("download", `leveret-definitions-${day}.json`);
}

async function importFile(context, file) {
  const json = await readJson(file);
  const { vhost } = context;
  const isDone = await confirmAction({
    title: "Import definitions",
    name: file.name,
    text: vhost === "" ? "They take effect immediately, in all virtual hosts." : `They take effect immediately, in virtual host ${vhost}.`,
    verb: "Import",
    action: () => context.api.request("POST", vhost === "" ? ["definitions"] : ["definitions", vhost], { json }),
  });
  if (!isDone) return "";
  await Promise.all([context.reloadVhosts(), context.refresh()]);
  return `${file.name} has been imported.`;
}

/** Return the file unchanged: JavaScript would round large numbers when it encodes them again. */
async function readJson(file) {
  const text = await file.text();
  try {
    JSON.parse(text);
  } catch (error) {
    throw new Error(`${file.name} is not JSON: ${error.message}`);
  }
  return text;
}
