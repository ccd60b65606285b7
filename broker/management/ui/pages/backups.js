/** Page with the backups that the broker takes: what there is, how large and how old, and up to when each restores. */

import { h, patch } from "../parts/element.js";
import { ago, bytes, countedNoun, dateTime, number, span } from "../parts/format.js";
import { emptyState, heading, plainTable, properties, section } from "../parts/layout.js";

const COLUMNS = [
  { label: "Moment", title: "When it was taken: messages and definitions of this moment are in it" },
  { label: "Any moment until", title: "What has come after it was sent until then, so any moment up to this one can be restored" },
  { label: "Size", numeric: true, title: "Size of its files" },
  { label: "New", numeric: true, title: "Bytes that were sent for it: earlier backups had the rest" },
  { label: "Took", numeric: true, title: "How long it took" },
  { label: "Files", numeric: true },
];

export default {
  title: () => "Backups",

  mount(context) {
    patch(context.root, heading("Backups"));
    return async () => {
      const found = await context.api.get(["backups"]);
      patch(context.root, heading("Backups"), found.url === null ? none() : [notice(found), facts(found), list(found)]);
    };
  },
};

function none() {
  return emptyState("The broker takes no backups.", "Set backup.url in its configuration: backups are then taken while it runs, and any moment between them can be restored.");
}

function notice({ late, age, error, failures }) {
  if (!late && !error) return null;
  const text = [late ? `The last backup is ${span(age)} old.` : "The last backup has failed.", error && `${error}.`, failures > 1 ? `${countedNoun(failures, "failure")} since the broker's start.` : null];
  return h("p", { class: `notice ${late ? "error" : "warning"}`, key: "notice" }, text.filter(Boolean).join(" "));
}

function facts({ url, age, restorable }) {
  const spans = restorable.map(({ from, to }) => h("div", { key: String(from) }, from === to ? dateTime(from) : `any moment from ${dateTime(from)} to ${dateTime(to)}`));
  return properties([
    ["Where", url],
    ["Age", `${span(age)}`, "Since what is new was sent last"],
    ["Can be restored", spans.length > 0 ? spans : "nothing yet"],
  ]);
}

function list({ backups }) {
  if (backups.length === 0) return null;
  const rows = backups.map(({ moment, until, bytes: size, new_bytes: sent, seconds, files }) => ({
    key: String(moment),
    cells: [h("span", null, dateTime(moment), " ", h("span", { class: "muted" }, ago(moment))), until > moment ? dateTime(until) : null, size === null ? "damaged" : bytes(size), bytes(sent), seconds === null ? null : `${seconds.toFixed(1)} s`, number(files)],
  }));
  return section("Whole backups", plainTable("backups", COLUMNS, rows));
}
