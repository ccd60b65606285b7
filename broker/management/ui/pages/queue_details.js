/** Properties, fill and storage of a queue. */

import { address } from "../parts/address.js";
import { clientState } from "../parts/badge.js";
import { h } from "../parts/element.js";
import { ago, bytes, dateTime, isNumber, number, rate, span } from "../parts/format.js";
import { properties, tiles, valueTable } from "../parts/layout.js";
import { bytesFill, features, messagesFill, nearestFill, policyLink } from "./queue_features.js";

const NONE = "none";

/** Fields of a queue that this module needs. */
export const DETAIL_FIELDS = [
  ["name", "vhost", "type", "durable", "auto_delete", "exclusive", "arguments", "effective_arguments", "state", "idle_since"],
  ["policy", "operator_policy", "owner_pid_details"],
  ["single_active_consumer_tag", "single_active_consumer_ctag", "exclusive_consumer_tag"],
  ["consumers", "consumer_capacity", "memory", "fill", "storage", "messages_dlx", "head_message_timestamp"],
  ["oldest_ready_age", "oldest_unacked_age"],
  ["delayed_retry", "messages_delayed", "message_bytes_delayed", "next_delayed_at"],
  ["messages", "messages_ready", "messages_unacknowledged", "messages_ram"],
  ["message_bytes", "message_bytes_ready", "message_bytes_unacknowledged", "message_bytes_ram", "stream"],
].flat();

/** Make the most important numbers of a queue. @param {Object} queue queue object of the API @returns {HTMLElement} */
export function queueTiles(queue) {
  const { message_stats: stats = {}, loss_stats: losses } = queue;
  const lost = losses?.lost ?? 0;
  const tile = ["Permanently lost", lost > 0 ? h("span", { class: "bad" }, number(lost)) : "0"];
  // What is wrong comes first.
  return tiles([
    ...(lost > 0 ? [tile] : []),
    ...(isNumber(queue.fill?.percent) && !queue.stream ? [["Fill", nearestFill(queue.fill)]] : []),
    ["Ready", number(queue.messages_ready)],
    ["Unacked", number(queue.messages_unacknowledged)],
    ...(queue.messages_delayed > 0 ? [["Delayed", number(queue.messages_delayed)]] : []),
    ["Total", number(queue.messages)],
    ["Consumers", number(queue.consumers)],
    ["In", rate(stats.publish_details?.rate ?? 0)],
    ["Deliver", rate(stats.deliver_get_details?.rate ?? 0)],
    ["Ack", rate(stats.ack_details?.rate ?? 0)],
    ...(lost > 0 ? [] : [tile]),
  ]);
}

/** Make the list of properties. @param {Object} queue queue object of the API @returns {HTMLElement} */
export function queueProperties(queue) {
  const { vhost, owner_pid_details: owner } = queue;
  const active = queue.single_active_consumer_tag ?? queue.single_active_consumer_ctag;
  const capacity = queue.consumers > 0 && isNumber(queue.consumer_capacity) ? `${Math.round(queue.consumer_capacity * 100)}%` : null;
  const marks = features(queue).filter((each) => each !== null);
  return properties([
    ["State", clientState(queue)],
    ["Type", queue.type],
    ["Features", marks.length > 0 ? marks : NONE],
    ["Arguments", valueTable(queue.arguments)],
    ["Policy", policyLink(vhost, queue.policy) ?? NONE],
    ["Operator policy", policyLink(vhost, queue.operator_policy, true) ?? NONE],
    ["Exclusive to", owner ? connectionLink(owner) : null, "The connection that declared it; other connections cannot use it"],
    ["Exclusive consumer", queue.exclusive_consumer_tag],
    ["Active consumer", active, "The consumer that currently receives the messages"],
    ["Consumer capacity", capacity, "Share of recent time in which its consumers could receive more messages immediately"],
  ]);
}

function connectionLink({ name }) {
  return h("a", { href: address("connections", name) }, name);
}

/** Make the list about fill and storage. @param {Object} queue queue object of the API @returns {HTMLElement} */
export function fillAndStorage(queue) {
  const { fill, storage = {}, messages_dlx: letters, head_message_timestamp: head } = queue;
  if (queue.stream) return streamStorage(queue);
  return properties([
    ["Messages", limited(queue, messagesFill(fill), fill?.max_length_source)],
    ["Bytes", limited(queue, bytesFill(fill), fill?.max_length_bytes_source)],
    ["What counts", fill?.length_counts === "all" ? "ready and unacked messages" : null, "For both limits; length-counts is all"],
    ["When it is full", fill?.at_limit],
    ["Duplicates dropped", queue.deduplicated > 0 ? number(queue.deduplicated) : null, "Messages whose x-deduplication-header was in the queue already; they are not lost"],
    ["In memory", amount(queue.messages_ram, queue.message_bytes_ram), "Ready or unacked; may also be on disk"],
    ["On disk only", amount(storage.messages_disk, storage.message_bytes_disk), "Ready messages that are not in memory"],
    ["Segments", segments(storage), "Files that hold its messages"],
    ["Oldest segment", storage.oldest_segment ? ["started ", ago(storage.oldest_segment)] : null],
    ["Unacked bytes", queue.message_bytes_unacknowledged > 0 ? bytes(queue.message_bytes_unacknowledged) : null],
    ["Memory of the queue", bytes(queue.memory), "Memory that the broker uses for the queue, including messages"],
    ["Dead letters waiting", letters > 0 ? number(letters) : null, "Kept until a queue has accepted them"],
    ["Delayed retry", queue.delayed_retry === "disabled" ? null : queue.delayed_retry, "Which returned messages wait before they are redelivered"],
    ["Delayed messages", queue.messages_delayed > 0 ? amount(queue.messages_delayed, queue.message_bytes_delayed) : null, "Returned messages that wait before they are redelivered"],
    ["Next redelivery", queue.next_delayed_at ? dateTime(queue.next_delayed_at) : null],
    ["Oldest ready message", age(queue.oldest_ready_age), "Since its arrival in the queue"],
    ["Oldest unacked message", age(queue.oldest_unacked_age), "Since its arrival in the queue, not its delivery"],
    ["Head of the queue", head ? ago(head * 1000) : null, "Timestamp property of the first message"],
  ]);
}

/** Make the list about offsets, limits and files of a stream. */
function streamStorage(queue) {
  const { fill, storage = {}, stream } = queue;
  return properties([
    ["Offsets", isNumber(stream.first_offset) ? [number(stream.first_offset), " to ", number(stream.last_offset)] : NONE],
    ["Oldest message", stream.oldest ? ["arrived ", ago(stream.oldest)] : null],
    ["Files", segments(storage), "Files that hold its messages"],
    ["Size", limited(queue, bytesFill(fill), fill?.max_length_bytes_source), "Whole segments are removed; the newest always stays"],
    ["Age", stream.max_age ?? "no limit", "Whole segments are removed when their last message is older"],
    ["Segments", bytes(stream.segment_bytes), "What is removed together; the size was set when the stream was declared"],
    ["Removed by limits", number(stream.removed_by_retention), "Messages since the start of the broker; they are no losses"],
    ["Memory of the stream", bytes(queue.memory), "Memory that the broker uses for the stream"],
  ]);
}

/** Make the numbers of a bar and the source of the limit. */
function limited({ vhost, policy, operator_policy: operatorPolicy }, bar, source) {
  const sources = {
    argument: ["an argument"],
    policy: ["policy ", policyLink(vhost, policy)],
    "operator policy": ["operator policy ", policyLink(vhost, operatorPolicy, true)],
  };
  if (!(source in sources)) return "no limit";
  return h("span", { class: "prose" }, bar, ` ${bar.dataset.amounts}, limit by `, sources[source]);
}

function age(seconds) {
  return isNumber(seconds) ? `arrived ${span(seconds)} ago` : null;
}

function segments({ segments: count, segment_bytes: size }) {
  return count > 0 ? [number(count), count === 1 ? " file, " : " files, ", bytes(size)] : NONE;
}

function amount(count, size) {
  if (count === undefined) return null;
  return count === 0 ? NONE : [number(count), count === 1 ? " message, " : " messages, ", bytes(size)];
}
