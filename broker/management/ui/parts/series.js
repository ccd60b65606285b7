/** From the samples of the API to what charts draw. */

/** @typedef {{at: number, value: number}} Point milliseconds since 1970, and a value */

/** What a user can choose to look back on: seconds, seconds between samples, words. */
export const RANGES = [
  [60, 5, "last minute"],
  [600, 5, "last ten minutes"],
  [3600, 60, "last hour"],
  [28_800, 600, "last eight hours"],
  [86_400, 1800, "last day"],
];

const KINDS = ["lengths", "msg_rates", "data_rates", "node_stats"];

/**
 * The query that makes the API add samples to all numbers.
 *
 * @param {number} age seconds
 * @param {number} increment seconds
 * @returns {Object<string, number>} `lengths_age`, `lengths_incr`, …
 */
export function samplesQuery(age, increment) {
  return Object.fromEntries(KINDS.flatMap((kind) => [[`${kind}_age`, age], [`${kind}_incr`, increment]]));
}

/**
 * The values of a gauge (lengths, memory).
 *
 * @param {{samples?: {sample: number, timestamp: number}[]}} [details] such as `messages_details`
 * @returns {Point[]} oldest first
 */
export function levels(details) {
  return (details?.samples ?? []).map(({ sample, timestamp }) => ({ at: timestamp, value: sample })).reverse();
}

/**
 * The rates of a counter between its samples, per second.
 *
 * @param {{samples?: {sample: number, timestamp: number}[]}} [details] such as `publish_details`
 * @returns {Point[]} oldest first, one fewer than samples
 */
export function rates(details) {
  const points = levels(details);
  return points.slice(1).map(({ at, value }, index) => {
    const before = points[index];
    return { at, value: Math.max(0, ((value - before.value) * 1000) / (at - before.at)) };
  });
}
