/** Columns with a rate of an object's messages. */

import { rate } from "./format.js";

/**
 * A column with the rate of one figure in `message_stats`.
 *
 * @param {string} figure for example `publish_in`
 * @param {string} label its heading
 * @param {string} title what is counted, on hover
 * @param {Object} [more] of the column, for example `hidden`
 * @returns {import("./table.js").Column}
 */
export function rateColumn(figure, label, title, more = {}) {
  const path = `message_stats.${figure}_details.rate`;
  return { key: figure, label, title, numeric: true, sort: path, fields: [path], cell: ({ message_stats: stats }) => rate(stats?.[`${figure}_details`]?.rate ?? 0), ...more };
}
