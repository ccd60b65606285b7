/** Badges for the states of connections and channels. */

import { badge } from "./badge.js";
import { dateTime } from "./format.js";

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
