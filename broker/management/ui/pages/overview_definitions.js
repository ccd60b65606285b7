/** Definitions: taken out as a file, put in from one. */

import { apiPath } from "../parts/api.js";
import { confirmAction } from "../parts/dialog.js";
import { h } from "../parts/element.js";
import { Form } from "../parts/form.js";
import { folded } from "../parts/layout.js";

/**
 * The section about definitions.
 *
 * @param {Object} context of the page
 * @returns {HTMLElement} made once
 */
export function definitionsSection(context) {
  const form = new Form({
    fields: [{ name: "file", label: "Definitions file", kind: "file", accept: ".json,application/json", required: true, hint: "What the file has is added or replaced; nothing is deleted." }],
    submit: "Import …",
    action: ({ file }) => importFile(context, file),
  });
  const download = h("a", { class: "button", href: exportPath(context), download: "", on: { click: (event) => prepare(event.currentTarget, context) } }, "Export definitions");
  const made = folded("Definitions", h("p", null, "Virtual hosts, users, permissions, exchanges, queues, bindings and policies, of the chosen virtual host or of all. Users come with the hashes of their passwords."), h("p", null, download), form.element);
  return made;
}

function exportPath({ vhost }) {
  return apiPath(vhost === "" ? ["definitions"] : ["definitions", vhost]);
}

/** The link is that of the virtual host which is chosen at the moment. */
function prepare(link, context) {
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
    text: vhost === "" ? "They are put in force at once, in all virtual hosts." : `They are put in force at once, in virtual host ${vhost}.`,
    verb: "Import",
    action: () => context.api.request("POST", vhost === "" ? ["definitions"] : ["definitions", vhost], { json }),
  });
  if (!isDone) return "";
  await Promise.all([context.reloadVhosts(), context.refresh()]);
  return `${file.name} has been imported.`;
}

/** The file as it is: written anew, large numbers would come out as others. */
async function readJson(file) {
  const text = await file.text();
  try {
    JSON.parse(text);
  } catch (error) {
    throw new Error(`${file.name} is no JSON: ${error.message}`);
  }
  return text;
}
