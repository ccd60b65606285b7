/** Splits the API's loss counts by reason, so that they add up to the number of lost messages. */

const DEAD_LETTER_REASONS = ["maxlen", "expired", "rejected", "delivery_limit"];

/**
 * Reason for the removal of messages.
 *
 * @typedef {Object} Reason
 * @property {string} key key of the amount
 * @property {string} label
 * @property {string} text explanation
 * @property {boolean} isLost whether the messages count as lost
 */

/** @type {Reason[]} in display order */
export const REASONS = [
  { key: "maxlen", label: "Over the limit", isLost: true, text: "The queue was full and dropped its oldest messages." },
  { key: "refused", label: "Refused", isLost: true, text: "The queue was full and refused them. Their publishers do not know it: they use no confirms." },
  { key: "expired", label: "Expired", isLost: true, text: "They exceeded their time to live." },
  { key: "rejected", label: "Rejected", isLost: true, text: "A consumer rejected them without requeueing." },
  { key: "delivery_limit", label: "Delivery limit", isLost: true, text: "They were requeued more often than the delivery limit allows." },
  { key: "letters", label: "Dead letters lost", isLost: true, text: "The dead-letter exchange did not exist or did not route them to a queue." },
  { key: "unroutable", label: "Unroutable", isLost: true, text: "No binding matched, and they were not published as mandatory." },
  { key: "told", label: "Refused, publisher told", isLost: false, text: "The queue was full and refused them. Their publishers were told: by confirms, a transaction or the answer over HTTP." },
  { key: "returned", label: "Returned", isLost: false, text: "No binding matched; they were returned to the publisher (mandatory)." },
  { key: "kept", label: "Dead-lettered", isLost: false, text: "They were routed to a queue through the dead-letter exchange." },
  { key: "purged", label: "Purged", isLost: false, text: "The queue was purged." },
  { key: "deleted", label: "Gone with the queue", isLost: false, text: "They were in a queue that was deleted or expired." },
];

/**
 * Split amounts by reason.
 *
 * The API counts dropped messages, dead letters published to an exchange, and dead letters that reached no queue.
 * The latter include those whose exchange did not exist; their number follows from the sum. If several reasons have
 * both, their distribution among the reasons is an estimate.
 *
 * @param {Object} amounts amounts of a row, a window or the totals, as in the API
 * @returns {Object<string, number>} amounts by the keys of REASONS; the lost ones add up to `amounts.lost`
 */
export function byReason({ lost, dropped, refused: all, refused_told: told, dead_lettered: handed, dead_letters_lost: gone, unroutable }) {
  const unrouted = unroutable.dropped;
  const refused = all - told;
  // Refused messages may also be dead-lettered (reject-publish-dlx), which is counted under maxlen.
  const died = { ...dropped, maxlen: dropped.maxlen + refused };
  const kept = Math.max(0, sum(died) + unrouted - lost);
  // Messages that were not published to a dead-letter exchange count as lost for their own reason.
  const left = Object.fromEntries(DEAD_LETTER_REASONS.map((death) => [death, died[death] - handed[death]]));
  const least = Object.fromEntries(DEAD_LETTER_REASONS.map((death) => [death, Math.max(0, gone[death] - handed[death])]));
  const rest = take(left, least, kept - sum(handed) + sum(gone));
  // Dead letters without an existing exchange, and those that wait to be published (at-least-once).
  const room = Object.fromEntries(DEAD_LETTER_REASONS.map((death) => [death, Math.min(gone[death] - least[death], left[death])]));
  const waiting = take(left, room, rest);
  take(left, { ...left }, waiting);
  const plain = Object.fromEntries(DEAD_LETTER_REASONS.map((death) => [death, Math.max(0, left[death])]));
  const maxlen = Math.min(plain.maxlen, Math.max(0, plain.maxlen - refused));
  return {
    ...plain,
    maxlen,
    refused: plain.maxlen - maxlen,
    told,
    letters: Math.max(0, lost - unrouted - sum(plain)),
    unroutable: unroutable.dropped,
    returned: unroutable.returned,
    kept,
    purged: dropped.purged,
    deleted: dropped.deleted,
  };
}

function sum(table) {
  return DEAD_LETTER_REASONS.reduce((total, death) => total + table[death], 0);
}

/** Subtract a total from the amounts, one reason after the other; return the part that did not fit. */
function take(left, room, total) {
  let rest = total;
  for (const death of DEAD_LETTER_REASONS) {
    const taken = Math.max(0, Math.min(rest, room[death]));
    left[death] -= taken;
    rest -= taken;
  }
  return rest;
}
