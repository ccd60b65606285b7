/** What was lost, by reason: the amounts of the API taken apart so that they add up to what is lost. */

const DEATHS = ["maxlen", "expired", "rejected", "delivery_limit"];

/**
 * A reason for which messages are gone.
 *
 * @typedef {Object} Reason
 * @property {string} key of its amount
 * @property {string} label in headings
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
  { key: "letters", label: "Dead letters lost", isLost: true, text: "Meant for a dead-letter exchange that is not there, or that led to no queue that took them." },
  { key: "unroutable", label: "Unroutable", isLost: true, text: "No binding led to a queue, and the publisher had not asked to get them back." },
  { key: "returned", label: "Returned", isLost: true, text: "No binding led to a queue; the publisher got them back (mandatory)." },
  { key: "kept", label: "Dead-lettered", isLost: false, text: "A queue behind the dead-letter exchange has them." },
  { key: "purged", label: "Purged", isLost: false, text: "Somebody emptied the queue." },
  { key: "deleted", label: "Gone with the queue", isLost: false, text: "They were waiting in a queue that was deleted, or that expired." },
];

/**
 * Take amounts apart.
 *
 * @param {Object} amounts of a row, a window or the totals, as in the API
 * @returns {Object<string, number>} by the keys of REASONS; those that are lost come to `amounts.lost`
 */
export function byReason({ dropped, refused, dead_lettered: letters, dead_letters_lost: gone, unroutable }) {
  // Refused messages may be dead-lettered, too (reject-publish-dlx); the API counts these under maxlen.
  const limit = dropped.maxlen + refused - letters.maxlen;
  const maxlen = Math.min(limit, Math.max(0, dropped.maxlen - letters.maxlen));
  const sum = (table) => DEATHS.reduce((total, death) => total + table[death], 0);
  return {
    maxlen,
    refused: limit - maxlen,
    expired: dropped.expired - letters.expired,
    rejected: dropped.rejected - letters.rejected,
    delivery_limit: dropped.delivery_limit - letters.delivery_limit,
    letters: sum(gone),
    unroutable: unroutable.dropped,
    returned: unroutable.returned,
    kept: sum(letters) - sum(gone),
    purged: dropped.purged,
    deleted: dropped.deleted,
  };
}
