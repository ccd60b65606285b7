/** Usage bars of a queue. */

import { fillBar } from "../parts/badge.js";
import { exactNumber, shortBytes } from "../parts/format.js";

/**
 * Make the bar for the nearest limit.
 *
 * @param {Object|null} fill fill of a queue, as in the API
 * @returns {HTMLElement}
 */
export function nearestFill(fill) {
  const isBytes = (fill?.bytes_percent ?? -1) > (fill?.messages_percent ?? -1);
  return isBytes ? bytesFill(fill) : messagesFill(fill);
}

/** Make the bar for the limit of messages; `data-amounts` has the numbers. */
export function messagesFill(fill) {
  return bar("Messages", fill, fill?.messages_counted, fill?.max_length, exactNumber, fill?.max_length_source);
}

/** Make the bar for the limit of bytes; `data-amounts` has the numbers. */
export function bytesFill(fill) {
  return bar("Bytes", fill, fill?.message_bytes_counted, fill?.max_length_bytes, shortBytes, fill?.max_length_bytes_source);
}

function bar(label, fill, used, limit, write, source) {
  if (limit === undefined || limit === null) return fillBar(0, null, write);
  const counted = fill.length_counts === "all" ? "; unacked messages count, too" : "";
  const made = fillBar(used, limit, write, { label, note: `limit by ${source}${counted}; when it is full, ${fill.at_limit}` });
  made.dataset.amounts = `${write(used)} of ${write(limit)}`;
  return made;
}
