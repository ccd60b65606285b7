/** What a queue is, how full it is, and where its messages are. */

import { address } from "../parts/address.js";
import { h } from "../parts/element.js";
import { ago, bytes, exactNumber, number, rate } from "../parts/format.js";
import { properties, tiles, valueTable } from "../parts/layout.js";
import { features, policyLink, stateOf } from "./queue_features.js";
import { bytesFill, messagesFill } from "./queue_fill.js";

const NONE = "none";

/** What the blocks here need of a queue. */
export const DETAIL_FIELDS = [
  ["name", "vhost", "type", "durable", "auto_delete", "exclusive", "arguments", "effective_arguments", "state", "idle_since"],
  ["policy", "operator_policy", "owner_pid_details", "single_active_consumer_tag", "single_active_consumer_ctag", "exclusive_consumer_tag"],
  ["consumers", "consumer_capacity", "memory", "fill", "storage", "messages_dlx", "head_message_timestamp"],
  ["messages", "messages_ready", "messages_unacknowledged", "messages_ram"],
  ["message_bytes", "message_bytes_ready", "message_bytes_unacknowledged", "message_bytes_ram"],
].flat();

/** The numbers that people look for first. @param {Object} queue as in the API @returns {HTMLElement} */
export function queueTiles(queue) {
  const { message_stats: stats = {}, loss_stats: losses } = queue;
  const lost = losses?.lost ?? 0;
  return tiles([
    ["Ready", number(queue.messages_ready)],
    ["Unacked", number(queue.messages_unacknowledged)],
    ["Total", number(queue.messages)],
    ["Consumers", number(queue.consumers)],
    ["In", rate(stats.publish_details?.rate ?? 0)],
    ["Deliver", rate(stats.deliver_get_details?.rate ?? 0)],
    ["Ack", rate(stats.ack_details?.rate ?? 0)],
    ["Lost for good", lost > 0 ? h("span", { class: "bad" }, number(lost)) : "0"],
  ]);
}

/** What it is. @param {Object} queue as in the API @returns {HTMLElement} */
export function facts(queue) {
  const { vhost, owner_pid_details: owner } = queue;
  const marks = features(queue).filter((each) => each !== null);
  return properties([
    ["State", stateOf(queue)],
    ["Type", queue.type],
    ["Features", marks.length > 0 ? marks : NONE],
    ["Arguments", valueTable(queue.arguments)],
    ["Policy", policyLink(vhost, queue.policy) ?? NONE],
    ["Operator policy", policyLink(vhost, queue.operator_policy, true) ?? NONE],
    ["Exclusive to", owner ? h("a", { href: address("connections", owner.name) }, owner.name) : null, "The connection that declared it; nobody else may use it"],
    ["Exclusive consumer", queue.exclusive_consumer_tag],
    ["Active consumer", queue.single_active_consumer_tag ?? queue.single_active_consumer_ctag, "The one that gets the messages for now"],
    ["Consumer capacity", queue.consumers > 0 ? `${Math.round(queue.consumer_capacity * 100)}%` : null, "Share of the recent time in which its consumers could have taken more at once"],
  ]);
}

/** How full it is, and where its messages are. @param {Object} queue as in the API @returns {HTMLElement} */
export function fillAndStorage(queue) {
  const { fill, storage = {} } = queue;
  return properties([
    ["Messages", fill?.max_length === undefined || fill.max_length === null ? "no limit" : limited(queue, messagesFill(fill), fill.messages_ready, fill.max_length, exactNumber, fill.max_length_source)],
    ["Bytes", fill?.max_length_bytes === undefined || fill.max_length_bytes === null ? "no limit" : limited(queue, bytesFill(fill), fill.message_bytes_ready, fill.max_length_bytes, bytes, fill.max_length_bytes_source)],
    ["When it is full", fill?.at_limit],
    ["In memory", amount(queue.messages_ram, queue.message_bytes_ram), "Messages that are in memory, ready or unacked; they may be on disk as well"],
    ["On disk only", amount(storage.messages_disk, storage.message_bytes_disk), "Ready messages that are on disk and not in memory"],
    ["Segments", storage.segments > 0 ? [number(storage.segments), storage.segments === 1 ? " file, " : " files, ", bytes(storage.segment_bytes)] : NONE, "Files that hold its messages"],
    ["Oldest segment", storage.oldest_segment ? ["begun ", ago(storage.oldest_segment)] : null],
    ["Unacked bytes", queue.message_bytes_unacknowledged > 0 ? bytes(queue.message_bytes_unacknowledged) : null],
    ["Memory of the queue", bytes(queue.memory), "What the broker uses for it, messages included"],
    ["Dead letters waiting", queue.messages_dlx > 0 ? number(queue.messages_dlx) : null, "Until a queue has taken them: dead-letter-strategy is at-least-once"],
    ["Head of the queue", queue.head_message_timestamp ? ago(queue.head_message_timestamp * 1000) : null, "The timestamp that the publisher gave to the first message"],
  ]);
}

function limited({ vhost, policy, operator_policy: operatorPolicy }, bar, used, limit, write, source) {
  const by = { policy: ["policy ", policyLink(vhost, policy)], "operator policy": ["operator policy ", policyLink(vhost, operatorPolicy, true)] }[source] ?? "an argument";
  return h("span", { class: "prose" }, bar, " ", write(used), " of ", write(limit), ", limit by ", by);
}

function amount(count, size) {
  return count === undefined ? null : count === 0 ? NONE : [number(count), count === 1 ? " message, " : " messages, ", bytes(size)];
}
