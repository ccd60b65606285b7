/** Effective settings of a queue and their sources. */

import { address } from "../parts/address.js";
import { h } from "../parts/element.js";
import { exactNumber, plain, shortBytes, span } from "../parts/format.js";
import { plainTable } from "../parts/layout.js";
import { policyLink } from "./queue_features.js";

/** Defaults of settings; settings without a default are unset. */
const DEFAULTS = {
  overflow: "drop-head",
  "length-counts": "ready",
  "queue-mode": "default",
  "dead-letter-strategy": "at-most-once",
  "dead-letter-routing-key": "that of the message",
  "max-length": "no limit",
  "max-length-bytes": "no limit",
  "delivery-limit": "20",
  "redelivery-limit": "no limit",
  "delayed-retry-type": "disabled",
  "x-message-deduplication": "no",
  "consumer-timeout": "that of the broker",
  "message-ttl": "never",
  expires: "never",
};
const HEADINGS = ["Setting", "In force", "Set by", "Argument", "Policy", "Operator policy", "Why"];

/**
 * Make the table of all settings of a queue: effective value, source, the values of all sources, and the rule.
 *
 * @param {Object} explanation explanation of the queue, as in the API
 * @param {Object[]} keys all policy keys, as in the API
 * @returns {HTMLElement}
 */
export function settingsTable(explanation, keys) {
  const known = new Map(keys.map((key) => [key.key, key]));
  const said = explanation.settings.map((setting) => ({ ...setting, about: known.get(setting.key) }));
  const rows = [...said, ...onlyArguments(explanation, known), ...unsetSettings(explanation, keys)];
  return plainTable("Settings", HEADINGS, rows.map((row) => ({ key: row.key, cells: cells(row, explanation) })));
}

/** Make a warning if dead letters are lost because their exchange does not exist. @returns {HTMLElement|null} */
export function missingExchange({ missing_exchange: name }) {
  if (name === null) return null;
  return h("div", { class: "notice error" }, `There is no exchange ${name}, which is the dead-letter-exchange: dead letters of this queue are lost.`);
}

/**
 * Make the list of matching policies that are not in force, with the reasons.
 *
 * @param {Object} explanation explanation of the queue, as in the API
 * @returns {HTMLElement|null} null if there are none
 */
export function skippedPolicies({ vhost, passed_over: others }) {
  if (others.length === 0) return null;
  const items = others.map(({ kind, name, reason }) => {
    const isOperator = kind !== "policy";
    const words = isOperator ? "Operator policy " : "Policy ";
    return h("li", { key: `${kind} ${name}` }, words, policyLink(vhost, name, isOperator), ` – ${reason}`);
  });
  const title = h("p", null, "These policies also match the queue's name, but are not in force:");
  return h("div", { class: "beside" }, title, h("ul", { class: "bullets" }, items));
}

/** Make rows for settings that only arguments can have, such as x-max-priority. */
function onlyArguments({ arguments: args }, known) {
  return Object.entries(args)
    .filter(([argument]) => argument !== "x-queue-type" && !known.has(argument.replace(/^x-/, "")) && !known.has(argument))
    .map(([name, value]) => {
      const said = { argument: value, in_force: value, source: "argument", reason: "only an argument can set it" };
      return { key: name.replace(/^x-/, ""), ...said };
    });
}

function unsetSettings({ settings, type }, keys) {
  const there = new Set(settings.map(({ key }) => key));
  return keys
    .filter(({ key, queue_types: types, has_effect: counts }) => counts && types.includes(type) && !there.has(key))
    .map((about) => {
      const said = { in_force: DEFAULTS[about.key] ?? "none", source: "default", reason: "not set" };
      return { key: about.key, about, ...said };
    });
}

function cells(row, { vhost, policy, operator_policy: operatorPolicy }) {
  const { key, about, argument, source, reason } = row;
  const value = (each) => (each === null || each === undefined ? null : withUnit(each, about?.unit));
  const sources = {
    policy: () => ["policy ", policyLink(vhost, policy?.name)],
    "operator policy": () => ["operator policy ", policyLink(vhost, operatorPolicy?.name, true)],
  };
  const said = [value(argument), value(row.policy), value(row.operator_policy)];
  const title = about?.summary ?? null;
  if (source === "default" || row.in_force === null) {
    const name = h("span", { title, class: "muted" }, key);
    return [name, muted(row.in_force ?? "none"), muted(source ?? "not set"), ...said, muted(reason)];
  }
  const by = sources[source]?.() ?? source;
  return [h("span", { title }, key), h("strong", null, value(row.in_force)), by, ...said, h("span", { class: "sentence" }, reason)];
}

function muted(text) {
  return h("span", { class: "muted" }, text);
}

/** Make a value with its unit; large values are shown in larger units. */
function withUnit(value, unit) {
  if (typeof value !== "number") return plain(value);
  const exact = exactNumber(value);
  if (unit === "milliseconds") return value < 1000 ? `${exact} ms` : h("span", { title: `${exact} ms` }, span(value / 1000));
  if (unit === "bytes") return h("span", { title: `${exact} bytes` }, shortBytes(value));
  return exact;
}

const LIMITS = ["max-length", "max-length-bytes"];

/**
 * Make advice on how to raise or set a limit of the queue, depending on its source.
 *
 * @param {import("../parts/user.js").User} user
 * @param {Object} explanation explanation of the queue, as in the API
 * @returns {Array<HTMLElement|null>}
 */
export function limitAdvice(user, explanation) {
  const limits = explanation.settings.filter(({ key, in_force: value }) => LIMITS.includes(key) && value !== null);
  const lines = limits.map((limit) => h("li", { key: limit.key }, `To raise ${limit.key}: `, advice(limit, explanation)));
  const list = lines.length > 0 ? h("ul", { class: "bullets beside" }, lines) : null;
  return [list, user.may("policymaker") ? offer(explanation) : null];
}

function advice({ source, argument }, { vhost, policy, operator_policy: operatorPolicy }) {
  if (source === "argument") {
    return "it is an argument, which policies can only lower; delete and redeclare the queue to raise it.";
  }
  const isOperator = source === "operator policy";
  const link = policyLink(vhost, isOperator ? operatorPolicy.name : policy.name, isOperator);
  const who = isOperator ? ", which requires the tag administrator" : "";
  const most = argument === null ? "" : `; the argument limits it to at most ${exactNumber(argument)}`;
  return [`change ${source} `, link, `${who}${most}.`];
}

function offer(explanation) {
  const words = " The form starts with the keys of the current policy, which the new one replaces: only one policy is in force at a time.";
  const note = explanation.policy === null ? null : h("span", { class: "muted" }, words);
  return h("p", null, h("a", { class: "button", href: newPolicy(explanation) }, "Add a policy for this queue"), note);
}

/** Return the address of the form for a policy that applies only to this queue. */
function newPolicy({ vhost, name, policy }) {
  const query = new URLSearchParams({ vhost, pattern: `^${escaped(name)}$`, "apply-to": "queues" });
  if (policy !== null) {
    query.set("priority", String(policy.priority + 1));
    query.set("definition", JSON.stringify(policy.definition));
  }
  return `${address("policies")}?${query}`;
}

/** Escape a name for use in a regular expression. */
function escaped(name) {
  return name.replace(/[\\^$.*+?()[\]{}|]/g, "\\$&");
}
