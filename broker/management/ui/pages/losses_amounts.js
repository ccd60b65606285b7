/** What was lost, by reason: the amounts of the API taken apart so that they add up to what is lost. */

const DEATHS = ["maxlen", "expired", "rejected", "delivery_limit"];

/**
 * A reason for which messages are gone.
 *
 * @typedef {Object} Reason
 * @property {string} key of its amount
 * @property {string} label
 * @property {string} text what it means
 * @property {boolean} isLost whether it counts as lost
 */

/** @type {Reason[]} in the order in which they are shown */
export const REASONS = [
  { key: "maxlen", label: "Over the limit", isLost: true, text: "The queue was full, and its oldest messages were dropped." },
  { key: "refused", label: "Refused", isLost: true, text: "The queue was full and refused them. Publishers that use confirms were told, others were not." },
  { key: "expired", label: "Expired", isLost: true, text: "They waited longer than their time to live." },
  { key: "rejected", label: "Rejected", isLost: true, text: "A consumer rejected them for good." },
  { key: "delivery_limit", label: "Delivery limit", isLost: true, text: "They came back from consumers too often." },
  { key: "letters", label: "Dead letters lost", isLost: true, text: "Meant for a dead-letter exchange that was not there, or that led to no queue that took them." },
  { key: "unroutable", label: "Unroutable", isLost: true, text: "No binding led to a queue, and the publisher had not asked to get them back." },
  { key: "returned", label: "Returned", isLost: true, text: "No binding led to a queue; the publisher got them back (mandatory)." },
  { key: "kept", label: "Dead-lettered", isLost: false, text: "A queue behind the dead-letter exchange has them." },
  { key: "purged", label: "Purged", isLost: false, text: "Somebody emptied the queue." },
  { key: "deleted", label: "Gone with the queue", isLost: false, text: "They were waiting in a queue that was deleted, or that expired." },
];

/**
 * Take amounts apart.
 *
 * The API counts what was dropped, what of that was handed to a dead-letter exchange, and which dead letters no queue
 * took: those that had been handed over, and those whose exchange was not there. How many of the latter there were
 * follows from the sum; only where several reasons mix both, it is a guess for which reason.
 *
 * @param {Object} amounts of a row, a window or the totals, as in the API
 * @returns {Object<string, number>} by the keys of REASONS; those that are lost come to `amounts.lost`
 */
export function byReason({ lost, dropped, refused, dead_lettered: handed, dead_letters_lost: gone, unroutable }) {
  const unrouted = unroutable.dropped + unroutable.returned;
  // Refused messages may be dead-lettered, too (reject-publish-dlx), which is counted under maxlen.
  const died = { ...dropped, maxlen: dropped.maxlen + refused };
  const kept = Math.max(0, sum(died) + unrouted - lost);
  // Those that were not handed over, were not lost as dead letters, and would be lost plainly.
  const left = Object.fromEntries(DEATHS.map((death) => [death, died[death] - handed[death]]));
  const least = Object.fromEntries(DEATHS.map((death) => [death, Math.max(0, gone[death] - handed[death])]));
  const rest = take(left, least, kept - sum(handed) + sum(gone));
  // What no exchange was there for; and what is kept until it can be handed over (at-least-once).
  const room = Object.fromEntries(DEATHS.map((death) => [death, Math.min(gone[death] - least[death], left[death])]));
  const waiting = take(left, room, rest);
  take(left, { ...left }, waiting);
  const plain = Object.fromEntries(DEATHS.map((death) => [death, Math.max(0, left[death])]));
  const maxlen = Math.min(plain.maxlen, Math.max(0, plain.maxlen - refused));
  return {
    ...plain,
    maxlen,
    refused: plain.maxlen - maxlen,
    letters: Math.max(0, lost - unrouted - sum(plain)),
    unroutable: unroutable.dropped,
    returned: unroutable.returned,
    kept,
    purged: dropped.purged,
    deleted: dropped.deleted,
  };
}

function sum(table) {
  return DEATHS.reduce((total, death) => total + table[death], 0);
}

/** Take as much as there is room for, one reason after the other; return what could not be taken. */
function take(left, room, total) {
  let rest = total;
  for (const death of DEATHS) {
    const taken = Math.max(0, Math.min(rest, room[death]));
    left[death] -= taken;
    rest -= taken;
  }
  return rest;
}
