/** The state of a connection or channel, as a word that is coloured and explains itself. */

import { badge } from "./badge.js";
import { dateTime } from "./format.js";

const STATES = {
  running: ["good", "as it should be"],
  idle: ["plain", "nothing has happened for a while"],
  flow: ["warning", "publishes faster than the broker can take, and is slowed down"],
  blocking: ["warning", "will be blocked as soon as it publishes: a resource alarm is set"],
  blocked: ["bad", "has published while a resource alarm is set, and is not read from until that is over"],
  starting: ["plain", "is being opened"],
  tuning: ["plain", "is being opened"],
  opening: ["plain", "is being opened"],
  closing: ["plain", "is being closed"],
  closed: ["plain", "is closed"],
};

/**
 * The state of a connection or channel.
 *
 * @param {{state: string, idle_since?: string}} client as in the API; a running channel may be idle
 * @returns {HTMLElement}
 */
export function clientState({ state = "", idle_since: since }) {
  if (state === "running" && since) return badge("idle", `idle since ${dateTime(Date.parse(since))}`);
  const [kind, title] = STATES[state] ?? ["plain", state];
  return badge(state || "–", title, kind);
}
