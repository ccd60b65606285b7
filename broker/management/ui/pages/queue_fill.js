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

/** The bar for the limit of messages. */
export function messagesFill(fill) {
  const words = { label: "Messages", note: note(fill, fill?.max_length_source) };
  return fillBar(fill?.messages_ready, fill?.max_length ?? null, exactNumber, words);
}

/** The bar for the limit of bytes. */
export function bytesFill(fill) {
  const words = { label: "Bytes", note: note(fill, fill?.max_length_bytes_source) };
  return fillBar(fill?.message_bytes_ready, fill?.max_length_bytes ?? null, shortBytes, words);
}

function note(fill, source) {
  return fill === null || fill === undefined ? "" : `limit by ${source}; when it is full, ${fill.at_limit}`;
}
