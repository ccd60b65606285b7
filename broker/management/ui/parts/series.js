/** Converts samples of the API to points of charts. */

import { choice } from "./layout.js";
import { preference, setPreference } from "./preferences.js";

/** @typedef {{at: number, value: number}} Point time in milliseconds since 1970, and value */

/** Time ranges: length in seconds, seconds between samples, label. */
export const RANGES = [
  [60, 5, "last minute"],
  [600, 5, "last ten minutes"],
  [3600, 60, "last hour"],
  [28_800, 600, "last eight hours"],
  [86_400, 1800, "last day"],
];

const KINDS = ["lengths", "msg_rates", "data_rates", "node_stats"];

/**
 * Return query parameters that make the API add samples to all statistics.
 *
 * @param {number} age seconds
 * @param {number} increment seconds
 * @returns {Object<string, number>} `lengths_age`, `lengths_incr`, …
 */
export function samplesQuery(age, increment) {
  return Object.fromEntries(KINDS.flatMap((kind) => [[`${kind}_age`, age], [`${kind}_incr`, increment]]));
}

/**
 * Return the values of a gauge, such as a queue length or memory.
 *
 * @param {{samples?: {sample: number, timestamp: number}[]}} [details] such as `messages_details`
 * @returns {Point[]} oldest first
 */
export function levels(details) {
  return (details?.samples ?? []).map(({ sample, timestamp }) => ({ at: timestamp, value: sample })).reverse();
}

/**
 * Return the rates of a counter between its samples, per second.
 *
 * @param {{samples?: {sample: number, timestamp: number}[]}} [details] such as `publish_details`
 * @returns {Point[]} oldest first, one point fewer than samples
 */
export function rates(details) {
  const points = levels(details);
  return points.slice(1).map(({ at, value }, index) => {
    const before = points[index];
    return { at, value: Math.max(0, ((value - before.value) * 1000) / (at - before.at)) };
  });
}

/** Select element for the time range; the preference is shared by all pages. */
export class RangeChoice {
  /** @param {function(): void} changed called after a change of the range */
  constructor(changed) {
    this.age = preference("range", RANGES[0][0]);
    const choose = (value) => {
      this.age = Number(value);
      setPreference("range", this.age);
      changed();
    };
    const options = RANGES.map(([age, , label]) => [age, label]);
    this.element = choice("choose-range", "Charts", options, this.age, choose);
  }

  /** @returns {Object<string, number>} query parameters of a request for samples */
  get query() {
    const [age, increment] = RANGES.find(([each]) => each === this.age) ?? RANGES[0];
    return samplesQuery(age, increment);
  }
}
