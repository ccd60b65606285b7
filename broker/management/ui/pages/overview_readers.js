/** The named readers of streaming queries: what they read, what is kept for them, and a button that drops one. */

import { confirmAction } from "../parts/dialog.js";
import { h } from "../parts/element.js";
import { bytes, dateTime } from "../parts/format.js";
import { plainTable, section } from "../parts/layout.js";

const COLUMNS = [
  "Name",
  { label: "Virtual host", title: "Its name, or a pattern" },
  { label: "Queue", title: "Its name, or a pattern" },
  "Made",
  { label: "Seen", title: "When its query was seen last" },
  { label: "Kept", numeric: true, title: "Size of the files that are kept for readers alone and that it has not read" },
  "Action",
];

/**
 * Return the section of the readers.
 *
 * @param {Object} context context of the page
 * @param {Object[]} readers the readers, from the API
 * @returns {HTMLElement|null} section; null if there are none
 */
export function readersSection(context, readers) {
  if (readers.length === 0) return null;
  const rows = readers.map((each) => ({ key: each.name, cells: cells(context, each) }));
  return section("Readers", plainTable("readers", COLUMNS, rows));
}

function cells(context, { name, vhost, queue, created, seen, held_bytes: held }) {
  const all = h("span", { class: "muted" }, "all");
  const drop = { click: () => dropReader(context, name) };
  const button = h("button", { type: "button", class: "quiet", on: drop }, "Drop …");
  return [name, vhost ?? all, queue ?? all, dateTime(created), dateTime(seen), bytes(held), context.user.may("administrator") ? button : null];
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
