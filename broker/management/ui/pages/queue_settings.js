/** What is in force on a queue, and why. */

import { h } from "../parts/element.js";
import { exactNumber, plain, shortBytes, span } from "../parts/format.js";
import { plainTable } from "../parts/layout.js";
import { policyLink } from "./queue_features.js";

/** What counts if nobody has set anything; without one it is nothing at all. */
const DEFAULTS = {
  overflow: "drop-head",
  "queue-mode": "default",
  "dead-letter-strategy": "at-most-once",
  "dead-letter-routing-key": "that of the message",
  "max-length": "no limit",
  "max-length-bytes": "no limit",
  "delivery-limit": "no limit",
  "message-ttl": "never",
  expires: "never",
};
const HEADINGS = ["Setting", "In force", "Set by", "Argument", "Policy", "Operator policy", "Why"];

/**
 * All settings of a queue: the value, who has set it, what the others have said, and the rule by which it counts.
 *
 * @param {Object} explanation as in the API
 * @param {Object[]} keys all policy keys, as in the API
 * @returns {HTMLElement}
 */
export function settingsTable(explanation, keys) {
  const known = new Map(keys.map((key) => [key.key, key]));
  const said = explanation.settings.map((setting) => ({ ...setting, about: known.get(setting.key) }));
  const rows = [...said, ...onlyArguments(explanation, known), ...unsaid(explanation, keys)];
  return plainTable("Settings", HEADINGS, rows.map((row) => ({ key: row.key, cells: cells(row, explanation) })));
}

/**
 * The policies whose pattern matches the queue's name, and why they do not count.
 *
 * @param {Object} explanation as in the API
 * @returns {HTMLElement|null} null if there are none
 */
export function passedOver({ vhost, passed_over: others }) {
  if (others.length === 0) return null;
  const items = others.map(({ kind, name, reason }) => {
    const isOperator = kind !== "policy";
    const words = isOperator ? "Operator policy " : "Policy ";
    return h("li", { key: `${kind} ${name}` }, words, policyLink(vhost, name, isOperator), ` – ${reason}`);
  });
  const title = h("p", null, "These match the queue's name too, and are not in force:");
  return h("div", { class: "beside" }, title, h("ul", { class: "bullets" }, items));
}

/** What only arguments can say, such as x-max-priority. */
function onlyArguments({ arguments: given }, known) {
  return Object.entries(given)
    .filter(([argument]) => argument !== "x-queue-type" && !known.has(argument.replace(/^x-/, "")))
    .map(([name, value]) => {
      const said = { argument: value, in_force: value, source: "argument", reason: "only an argument can set it" };
      return { key: name.replace(/^x-/, ""), ...said };
    });
}

function unsaid({ settings, type }, keys) {
  const there = new Set(settings.map(({ key }) => key));
  return keys
    .filter(({ key, queue_types: types, has_effect: counts }) => counts && types.includes(type) && !there.has(key))
    .map((about) => {
      const said = { in_force: DEFAULTS[about.key] ?? "none", source: "default", reason: "nobody has set it" };
      return { key: about.key, about, ...said };
    });
}

function cells(row, { vhost, policy, operator_policy: operatorPolicy }) {
  const { key, about, argument, source, reason } = row;
  const value = (each) => (each === null || each === undefined ? null : worded(each, about?.unit));
  const sources = {
    policy: () => ["policy ", policyLink(vhost, policy?.name)],
    "operator policy": () => ["operator policy ", policyLink(vhost, operatorPolicy?.name, true)],
  };
  const said = [value(argument), value(row.policy), value(row.operator_policy)];
  const title = about?.summary ?? null;
  if (source === "default" || row.in_force === null) {
    const name = h("span", { title, class: "muted" }, key);
    return [name, muted(row.in_force ?? "nothing"), muted(source ?? "nobody"), ...said, muted(reason)];
  }
  const by = sources[source]?.() ?? source;
  return [h("span", { title }, key), h("strong", null, value(row.in_force)), by, ...said, reason];
}

function muted(text) {
  return h("span", { class: "muted" }, text);
}

/** A value with its unit, large ones also in words. */
function worded(value, unit) {
  if (typeof value !== "number") return plain(value);
  const exact = exactNumber(value);
  if (unit === "milliseconds") return value < 1000 ? `${exact} ms` : h("span", { title: `${exact} ms` }, span(value / 1000));
  if (unit === "bytes") return h("span", { title: `${exact} bytes` }, shortBytes(value));
  return exact;
}
