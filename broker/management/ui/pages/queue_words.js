/** Numbers of messages in sentences. */

import { exactNumber } from "../parts/format.js";

/** @param {number} count @returns {string} "1 message", "2,500 messages" */
export function messagesText(count) {
  return `${exactNumber(count)} ${count === 1 ? "message" : "messages"}`;
}
