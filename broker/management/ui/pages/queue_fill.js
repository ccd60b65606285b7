/** How full a queue is. */

import { fillBar } from "../parts/badge.js";
import { exactNumber, shortBytes } from "../parts/format.js";

/**
 * The bar for the limit that is nearer.
 *
 * @param {Object|null} fill of a queue as in the API
 * @returns {HTMLElement}
 */
export function nearestFill(fill) {
  const isBytes = (fill?.bytes_percent ?? -1) > (fill?.messages_percent ?? -1);
  return isBytes ? bytesFill(fill) : messagesFill(fill);
}

/** The bar for the limit of messages; `data-amounts` has it in numbers. */
export function messagesFill(fill) {
  return bar("Messages", fill, fill?.messages_ready, fill?.max_length, exactNumber, fill?.max_length_source);
}

/** The bar for the limit of bytes; likewise. */
export function bytesFill(fill) {
  return bar("Bytes", fill, fill?.message_bytes_ready, fill?.max_length_bytes, shortBytes, fill?.max_length_bytes_source);
}

function bar(label, fill, used, limit, write, source) {
  if (limit === undefined || limit === null) return fillBar(0, null, write);
  const made = fillBar(used, limit, write, { label, note: `limit by ${source}; when it is full, ${fill.at_limit}` });
  made.dataset.amounts = `${write(used)} of ${write(limit)}`;
  return made;
}
