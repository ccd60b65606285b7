/** Preview of a policy's effect before it is saved. */

import { confirmAction } from "../parts/dialog.js";
import { h } from "../parts/element.js";
import { countedNoun, exactNumber, shortBytes } from "../parts/format.js";
import { plainTable } from "../parts/layout.js";
import { shortValue } from "./policy_definition.js";
import { capital } from "./policy_kinds.js";

const SHOWN = 50;

/**
 * Show a dry run and save the policy after confirmation.
 *
 * @param {Object} question
 * @param {import("./policy_kinds.js").Kind} question.kind
 * @param {Object[]} question.keys all policy keys of the API
 * @param {string} question.name name of the policy
 * @param {Object} question.preview response of the API to `dry_run=true`
 * @param {boolean} question.isThere whether it replaces an existing policy
 * @param {function(): Promise} question.save
 * @returns {Promise<boolean>} whether it was saved
 */
export function confirmPolicy({ kind, keys, name, preview, isThere, save }) {
  const drop = preview.would_drop;
  const gone = drop.messages - drop.dead_lettered;
  return confirmAction({
    title: `${isThere ? "Change" : "Add"} ${kind.name}`,
    name,
    details: [summary(preview, kind), drop.messages > 0 ? warning(drop) : null, rivals(preview), table(preview, new Map(keys.map((key) => [key.key, key])))],
    isHarmless: drop.messages === 0,
    verb: verb(drop, gone),
    action: save,
  });
}

function verb(drop, gone) {
  const about = drop.estimated ? "about " : "";
  if (gone > 0) return `Save, and drop ${about}${countedNoun(gone, "message")}`;
  if (drop.messages > 0) return `Save, and dead-letter ${about}${countedNoun(drop.messages, "message")}`;
  return "Save";
}

function summary({ matching, in_force: inForce, policy }, kind) {
  const words = `It matches ${countedNoun(matching, "queue")}, and would be in force on ${matching === inForce && matching > 0 ? "all of them" : exactNumber(inForce)}.`;
  const exchanges = !kind.isOperator && ["all", "exchanges"].includes(policy["apply-to"]);
  return h("p", null, words, exchanges ? " The exchanges that it matches are shown when it is saved." : "");
}

function warning({ messages, bytes, estimated, dead_lettered: letters }) {
  const about = estimated ? "About " : "";
  const size = bytes > 0 ? ` (${estimated ? "at least " : ""}${shortBytes(bytes)})` : "";
  const target =
    letters === 0 ? "They have no dead-letter exchange and are lost."
    : letters === messages ? "They go to a dead-letter exchange."
    : `Of these, ${exactNumber(letters)} go to a dead-letter exchange; the others are lost.`;
  return h("div", { class: `notice ${letters === messages ? "warning" : "error"}` }, `${about}${countedNoun(messages, "message")}${size} would leave ${messages === 1 ? "its queue" : "their queues"} at once. ${target}`);
}

function rivals({ queues }) {
  const lost = queues.filter((queue) => queue.matches && !queue.in_force);
  if (lost.length === 0) return null;
  const names = [...new Set(lost.map(({ rival }) => rival).filter((rival) => rival !== null))];
  const who = names.length === 0 ? "" : ` (${names.slice(0, 3).join(", ")}${names.length > 3 ? ", …" : ""})`;
  return h("p", null, `On ${countedNoun(lost.length, "queue")} another policy${who} stays in force. This one needs a higher priority to be in force.`);
}

/** Make the table of queues: largest losses first, then other changed queues. */
function table({ queues }, keys) {
  if (queues.length === 0) return null;
  const weight = (queue) => [queue.would_drop.messages, Object.keys(queue.changes).length, queue.messages_ready];
  const sorted = [...queues].sort((one, other) => compare(weight(other), weight(one)));
  const rows = sorted.slice(0, SHOWN).map((queue) => ({
    key: queue.name,
    cells: [queue.name, droppedCell(queue.would_drop), exactNumber(queue.messages_ready), changes(queue.changes, keys), effect(queue)],
  }));
  const more = queues.length - rows.length;
  return [
    h("div", { class: "preview" }, plainTable("Queues", ["Queue", { label: "Would leave", numeric: true }, { label: "Ready", numeric: true }, "What changes", "Policy"], rows)),
    more > 0 ? h("p", { class: "muted" }, `and ${countedNoun(more, "more queue")}`) : null,
  ];
}

function compare(one, other) {
  const place = one.findIndex((value, index) => value !== other[index]);
  return place < 0 ? 0 : one[place] - other[place];
}

function droppedCell({ messages, estimated, dead_letter_exchange: exchange }) {
  if (messages === 0) return h("span", { class: "muted" }, "none");
  const target = exchange === null ? h("span", { class: "bad" }, "lost") : `to ${exchange === "" ? "(AMQP default)" : exchange}`;
  return [`${estimated ? "about " : ""}${exactNumber(messages)} `, target];
}

function effect({ matches, in_force: inForce, rival }) {
  if (!matches) return rival === null ? "no longer matches: none is left" : `no longer matches: ${rival} takes over`;
  if (!inForce) return rival === null ? "not in force: not for queues like this" : `not in force: ${rival} is`;
  return rival === null ? "in force" : `in force, in place of ${rival}`;
}

function changes(changed, keys) {
  const rows = Object.entries(changed);
  if (rows.length === 0) return h("span", { class: "muted" }, "nothing");
  return rows.map(([key, { from, to }]) => h("div", { key }, `${key}: ${settingText(from, keys.get(key))} → ${settingText(to, keys.get(key))}`));
}

function settingText(value, key) {
  return value === null || value === undefined ? "none" : shortValue(value, key);
}

/** Return the confirmation after saving. @returns {string} */
export function savedText(kind, name, preview) {
  return `${capital(kind.name)} ${name} is saved, and in force on ${countedNoun(preview.in_force, "queue")}.`;
}
