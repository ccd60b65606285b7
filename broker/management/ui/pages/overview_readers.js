/** The named readers of streaming queries: what they read, what is kept for them, and a button that drops one. */

import { listColumns } from "../parts/columns.js";
import { confirmAction } from "../parts/dialog.js";
import { h } from "../parts/element.js";
import { objectTable, section } from "../parts/layout.js";

/**
 * Return the section of the readers.
 *
 * @param {Object} context context of the page
 * @param {Object[]} readers the readers, from the API
 * @returns {HTMLElement|null} section; null if there are none
 */
export function readersSection(context, readers) {
  if (readers.length === 0) return null;
  const all = h("span", { class: "muted" }, "all");
  const action = { label: "Action", cell: ({ name }) => (context.user.may("administrator") ? dropButton(context, name) : null) };
  const columns = [...listColumns("readers", { vhost: ({ vhost }) => vhost ?? all, queue: ({ queue }) => queue ?? all }), action];
  return section("Readers", objectTable("readers", columns, readers));
}

function dropButton(context, name) {
  return h("button", { type: "button", class: "quiet", on: { click: () => dropReader(context, name) } }, "Drop …");
}

async function dropReader(context, name) {
  const isDone = await confirmAction({
    title: "Drop a reader",
    name,
    text: "Nothing is kept for it any more. Its query fails, or counts what it misses.",
    verb: "Drop",
    action: () => context.api.delete(["readers", name]),
  });
  if (!isDone) return;
  context.notify(`Reader ${name} has been dropped.`);
  await context.refresh();
}
