/** Page with the backups that the broker takes, and a form that restores a queue, for example one that was purged. */

import { Form } from "../parts/form.js";
import { address } from "../parts/address.js";
import { confirmAction } from "../parts/dialog.js";

import { h, patch } from "../parts/element.js";
import { ago, bytes, countedNoun, dateTime, number, span } from "../parts/format.js";
import { emptyState, heading, plainTable, properties, section } from "../parts/layout.js";
import { checkPositive } from "./queue_job.js";

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
    const form = restoreForm(context);
    return async () => {
      const found = await context.api.get(["backups"]);
      patch(context.root, heading("Backups"), found.url === null ? none() : [notice(found), facts(found), found.restorable.length > 0 ? section("Restore a queue", form.element) : null, list(found)]);
    };
  },
};

/** Make the form that restores a queue as a job of the broker: of a queue that may be gone, into another one. */
function restoreForm(context) {
  const { api, vhosts } = context;
  return new Form({
    fields: [
      { name: "vhost", label: "Virtual host", kind: "select", options: vhosts.map((each) => ({ value: each, label: each })), value: context.vhost || vhosts[0] },
      { name: "name", label: "Queue", required: true, hint: "Its name then; it may be deleted by now." },
      { name: "at", label: "As it was at", required: true, hint: "Just before it was purged, such as 2026-01-31T14:04:50Z.", check: checkTime },
      { name: "into", label: "Into the queue", hint: "Empty for NAME.restored. It is declared, durable, if there is none." },
      { name: "limit", label: "Messages", kind: "number", hint: "Empty for all.", check: checkPositive },
      { name: "rate", label: "Messages per second", kind: "number", hint: "Empty for no limit.", check: checkPositive },
    ],
    submit: "Restore …",
    keep: true,
    action: async ({ vhost, name, ...values }) => {
      const options = Object.fromEntries(Object.entries(values).filter(([, value]) => value !== "" && value !== null));
      const path = ["queues", vhost, name, "restore"];
      const { returned } = await api.post(path, { ...options, dry_run: true });
      if (returned === 0) return "The queue had no messages then.";
      let job = null;
      const target = options.into ?? `${name}.restored`;
      await confirmAction({
        title: "Restore a queue",
        name,
        text: `${countedNoun(Math.min(returned, options.limit ?? returned), "message")} will be published into the queue ${target}.`,
        isHarmless: true,
        verb: "Restore",
        action: async () => {
          job = await api.post(path, options);
        },
      });
      if (job !== null) context.navigate(address("jobs", vhost, job.id));
      return "";
    },
  });
}

function checkTime(value) {
  return Number.isNaN(Date.parse(value)) ? "This must be a time such as 2026-01-31T14:04:50Z." : null;
}

function none() {
  return emptyState("The broker takes no backups.", "Set backup.url in its configuration: backups are then taken while it runs, and any moment between them can be restored.");
}

function notice({ late, age, error, failures }) {
  if (!late && !error) return null;
  const text = [late ? `The last backup is ${span(age)} old.` : "The last backup has failed.", error && `${error}.`, failures > 1 ? `${countedNoun(failures, "failure")} since the broker's start.` : null];
  return h("p", { class: `notice ${late ? "error" : "warning"}`, key: "notice" }, text.filter(Boolean).join(" "));
}

function facts({ url, node, age, restorable }) {
  const spans = restorable.map(({ from, to }) => h("div", { key: String(from) }, from === to ? dateTime(from) : `any moment from ${dateTime(from)} to ${dateTime(to)}`));
  return properties([
    ["Where", url],
    ...(node === null ? [] : [["Taken by", node]]),
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
