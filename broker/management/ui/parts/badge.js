/** Badges and bars. */

import { h } from "./element.js";
import { dateTime } from "./format.js";

/**
 * Make a badge: a short text with an explanation on hover and for screen readers.
 *
 * @param {string} text text of the badge, for example `DLX`
 * @param {string} title explanation, for example `dead-letter-exchange: late`
 * @param {"plain"|"good"|"warning"|"bad"} [kind] style
 * @returns {HTMLElement}
 */
export function badge(text, title, kind = "plain") {
  return h("abbr", { class: `badge ${kind}`, title }, text);
}

/**
 * Make a bar that shows usage against a limit. It is a warning from 80% on and red from 100% on.
 *
 * @param {number} used amount in use
 * @param {number|null} limit limit; null shows "no limit" instead of a bar
 * @param {function(number): string} format formats both numbers
 * @param {{label?: string, note?: string}} [words] `label`: name of the resource, for screen readers; `note`: added on hover
 * @returns {HTMLElement}
 */
export function fillBar(used, limit, format, { label = "Used", note = "" } = {}) {
  if (!(limit >= 0) || limit === null) return h("span", { class: "muted" }, "no limit");
  const share = limit === 0 ? 1 : used / limit;
  const text = `${format(used)} of ${format(limit)}, ${inPercent(share)}`;
  return bar(share, note === "" ? text : `${text} (${note})`, `${label}: ${text}`);
}

/**
 * Make a usage bar from a percentage.
 *
 * @param {number|null} percent percentage; null without a limit
 * @param {string} [label] name of the resource, for screen readers
 * @returns {HTMLElement}
 */
export function percentBar(percent, label = "Used") {
  if (percent === null || percent === undefined) return h("span", { class: "muted" }, "no limit");
  const text = inPercent(percent / 100);
  return bar(percent / 100, `${text} of the limit that is nearest`, `${label}: ${text}`);
}

function inPercent(share) {
  return `${share >= 0.9995 || share < 0.0005 ? Math.round(share * 100) : Number((share * 100).toPrecision(2))}%`;
}

function bar(share, title, label) {
  const kind = share >= 1 ? "full" : share >= 0.8 ? "nearly" : "";
  return h(
    "span",
    { class: `fill ${kind}`, title, role: "img", "aria-label": label },
    h("span", { class: "fill-track" }, h("span", { class: "fill-used", style: { "--share": `${Math.min(100, share * 100)}%` } })),
    h("span", { class: "fill-text", "aria-hidden": "true" }, inPercent(share)),
  );
}

const STATES = {
  running: ["good", "normal operation"],
  idle: ["plain", "no recent activity"],
  flow: ["warning", "publishes faster than the broker can handle and is slowed down"],
  blocking: ["warning", "a resource alarm is in effect; the connection will be blocked when it publishes"],
  blocked: ["bad", "published during a resource alarm; the broker does not read from it until the alarm clears"],
  starting: ["plain", "is being opened"],
  tuning: ["plain", "is being opened"],
  opening: ["plain", "is being opened"],
  closing: ["plain", "is being closed"],
  closed: ["plain", "is closed"],
};

/**
 * Make the badge for the state of a connection or channel.
 *
 * @param {{state: string, idle_since?: string}} client object of the API; a running channel may be idle
 * @returns {HTMLElement}
 */
export function clientState({ state = "", idle_since: since }) {
  if (state === "running" && since) return badge("idle", `idle since ${dateTime(Date.parse(since))}`);
  const [kind, title] = STATES[state] ?? ["plain", state];
  return badge(state || "–", title, kind);
}
