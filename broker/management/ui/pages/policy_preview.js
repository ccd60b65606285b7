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
  return confirmAction({
    title: `${isThere ? "Change" : "Add"} ${kind.name}`,
    name,
    details: [summary(preview, kind), drop.messages > 0 ? warning(preview) : null, missing(preview), rivals(preview), table(preview, new Map(keys.map((key) => [key.key, key])))],
    isHarmless: drop.messages === 0,
    verb: verb(drop),
    action: save,
  });
}

function verb(drop) {
  const about = isEstimate(drop) ? "about " : "";
  if (drop.lost > 0) return `Save, and lose ${about}${countedNoun(drop.lost, "message")}`;
  if (drop.messages > 0) return `Save, and dead-letter ${about}${countedNoun(drop.messages, "message")}`;
  return "Save";
}

function summary({ matching, in_force: inForce, policy }, kind) {
  const words = `It matches ${countedNoun(matching, "queue")}, and would be in force on ${matching === inForce && matching > 0 ? "all of them" : exactNumber(inForce)}.`;
  const exchanges = !kind.isOperator && ["all", "exchanges"].includes(policy["apply-to"]);
  return h("p", null, words, exchanges ? " The exchanges that it matches are shown when it is saved." : "");
}

function isEstimate({ estimated, lost_estimated: isLostEstimated }) {
  return estimated || isLostEstimated;
}

function warning({ would_drop: drop, dead_letters: reached }) {
  const { messages, bytes, estimated, dead_lettered: letters, lost } = drop;
  const about = estimated ? "About " : "";
  const size = bytes > 0 ? ` (${estimated ? "at least " : ""}${shortBytes(bytes)})` : "";
  const target =
    letters === 0 ? "They go to no dead-letter exchange and are lost."
    : letters === messages ? "They go to a dead-letter exchange."
    : `Of these, ${exactNumber(letters)} go to a dead-letter exchange; the others are lost.`;
  const full = reached.filter(({ leaving }) => leaving > 0).map(({ queue, arriving, leaving, lost: gone }) => ` Queue ${queue} gets ${exactNumber(arriving)} of the dead letters and drops or refuses ${countedNoun(leaving, "message")} for them; ${exactNumber(gone)} of these are lost.`);
  const inAll = lost > 0 && letters > 0 ? ` In all, ${isEstimate(drop) ? "about " : ""}${countedNoun(lost, "message")} ${lost === 1 ? "is" : "are"} lost.` : "";
  return h("div", { class: `notice ${lost === 0 ? "warning" : "error"}` }, `${about}${countedNoun(messages, "message")}${size} would leave ${messages === 1 ? "its queue" : "their queues"} at once. ${target}`, full.slice(0, 5), inAll);
}

function missing({ missing_exchanges: names }) {
  if (names.length === 0) return null;
  return h("div", { class: "notice error" }, `There is no exchange ${names.slice(0, 3).join(", ")}: dead letters for it are lost.`);
}

/** Return the names of the policies that stay in force on matching queues. */
function rivalNames({ queues }) {
  const names = queues.filter((queue) => queue.matches && !queue.in_force).map(({ rival }) => rival);
  return [...new Set(names.filter((name) => name !== null))];
}

function rivals(preview) {
  const lost = preview.queues.filter((queue) => queue.matches && !queue.in_force);
  if (lost.length === 0) return null;
  const names = rivalNames(preview);
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

function droppedCell({ messages, estimated, dead_letter_exchange: exchange, missing_exchange: absent }) {
  if (messages === 0) return h("span", { class: "muted" }, "none");
  const target = exchange === null ? h("span", { class: "bad" }, absent === null ? "lost" : `lost: there is no exchange ${absent}`) : `to ${exchange === "" ? "(AMQP default)" : exchange}`;
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
  const { matching, in_force: inForce } = preview;
  if (inForce === matching) return `${capital(kind.name)} ${name} is saved, and in force on ${countedNoun(inForce, "queue")}.`;
  const names = rivalNames(preview);
  const why = names.length === 0 ? "" : `: ${names.slice(0, 3).join(", ")}${names.length > 3 ? ", …" : ""} ${names.length === 1 ? "comes" : "come"} first`;
  return `${capital(kind.name)} ${name} is saved, and in force on ${exactNumber(inForce)} of ${countedNoun(matching, "queue")}${why}.`;
}
