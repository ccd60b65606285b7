/** Table columns with message rates. */

import { rate } from "./format.js";

/**
 * Make a column with the rate of one counter in `message_stats`.
 *
 * @param {string} figure for example `publish_in`
 * @param {string} label heading
 * @param {string} title explanation on hover
 * @param {Object} [more] further properties of the column, for example `hidden`
 * @returns {import("./table.js").Column}
 */
export function rateColumn(figure, label, title, more = {}) {
  const path = `message_stats.${figure}_details.rate`;
  return { key: figure, label, title, numeric: true, sort: path, fields: [path], cell: ({ message_stats: stats }) => rate(stats?.[`${figure}_details`]?.rate ?? 0), ...more };
}
