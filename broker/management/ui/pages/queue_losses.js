/** Lost messages of a queue by reason and time. */

import { address, exchangeAddress } from "../parts/address.js";
import { Chart } from "../parts/chart.js";
import { h, patch } from "../parts/element.js";
import { countedNoun, exactNumber, number, span } from "../parts/format.js";
import { choice, plainTable } from "../parts/layout.js";
import { RANGES, levels, samplesQuery } from "../parts/series.js";

/** Reason, label, and field of the chart. */
const REASONS = [
  ["maxlen", "Dropped over the limit", "drop_maxlen"],
  ["refused", "Refused: the queue was full", "refuse"],
  ["expired", "Expired", "drop_expired"],
  ["rejected", "Rejected by a consumer", "drop_rejected"],
  ["delivery_limit", "Delivered too often", "drop_delivery_limit"],
  ["purged", "Purged", "drop_purged"],
];
const DEAD_LETTER_REASONS = ["maxlen", "expired", "rejected", "delivery_limit"];
const FIRST_RANGE = 3600;

/** Fields of a queue that the section needs. */
export const LOSS_FIELDS = ["loss_stats"];

/** Section about lost messages; `element` is created once. */
export class LossSection {
  /** @param {Object} context context of the page */
  constructor(context) {
    this.context = context;
    this.age = FIRST_RANGE;
    const title = "By reason; each point counts the losses since the previous one";
    this.chart = new Chart({ title, empty: "Nothing was lost in this time." });
    const choose = (age) => {
      this.age = Number(age);
      context.refresh();
    };
    this.range = choice("choose-losses-range", "Chart", RANGES.map(([age, , label]) => [age, label]), FIRST_RANGE, choose);
    this.table = h("div", { own: true });
    this.history = h("div", { class: "beside", own: true }, this.range, this.chart.element);
    this.element = h("div", { own: true }, this.table, this.history);
  }

  /** @returns {Promise<Object|null>} losses with samples of the chosen range; null if there are none */
  async load() {
    const [age, increment] = RANGES.find(([each]) => each === this.age);
    const { vhost, name } = this.context.params;
    const query = { ...samplesQuery(age, increment), columns: "loss_stats" };
    return (await this.context.api.get(["queues", vhost, name], query)).loss_stats ?? null;
  }

  /**
   * Show the losses of a queue.
   *
   * @param {Object} queue queue object of the API
   * @param {Object|null} history result of load()
   * @param {Object} explanation explanation of the queue, as in the API
   */
  update(queue, history, explanation) {
    this.history.hidden = history === null;
    if (history !== null) this.chart.update(series(history));
    patch(this.table, lossCount(queue) > 0 ? [summary(queue), reasons(queue, explanation)] : noLosses());
  }
}

/** Return the number of messages that were removed without acknowledgement or refused, also before a restart. */
export function lossCount({ loss_stats: stats = {} }) {
  return REASONS.reduce((sum, [, , field]) => sum + (stats[field] ?? 0), 0);
}

function noLosses() {
  return h(
    "p",
    { class: "muted" },
    "No message was dropped, refused, expired, rejected or purged in this queue, as far as losses are counted. ",
    "Unroutable messages do not reach a queue: see the ",
    h("a", { href: address("losses") }, "losses of exchanges"),
    ".",
  );
}

function summary({ loss_stats: { lost, refuse_told: told } }) {
  const aware = told > 0 ? ` ${countedNoun(told, "message")} ${told === 1 ? "was" : "were"} refused, and the publishers told.` : "";
  if (lost === 0) return h("p", null, `No message is permanently lost: all were dead-lettered to a queue, purged, or refused with word to the publisher.${aware}`);
  const words = h("strong", { class: "bad" }, `${countedNoun(lost, "message")} permanently lost`);
  return h("p", null, words, `: they did not reach a dead-letter queue.${aware}`);
}

function reasons(queue, { in_force: inForce, missing_exchange: missing }) {
  const { loss_stats: stats, vhost } = queue;
  const rows = REASONS.filter(([, , field]) => stats[field] > 0).map(([reason, words, field]) => {
    const letters = DEAD_LETTER_REASONS.includes(reason) ? [number(stats[`dead_letter_${reason}`]), number(stats[`dead_letter_lost_${reason}`])] : [null, null];
    const sentences = h("span", { class: "prose" }, why(reason, inForce, stats), deadLetterTo(reason, inForce, vhost, missing));
    return { key: reason, cells: [words, number(stats[field]), ...letters, sentences] };
  });
  const headings = [
    "What happened",
    { label: "Messages", numeric: true },
    { label: "Dead-lettered", numeric: true, title: "Published to the dead-letter exchange" },
    { label: "Of these lost", numeric: true, title: "Dead letters that did not reach a queue" },
    "Why",
  ];
  return plainTable("Losses by reason", headings, rows);
}

function why(reason, inForce, stats) {
  const keys = ["max-length", "max-length-bytes"].filter((key) => key in inForce);
  const limit = keys.length > 0 ? keys.map((key) => `${key} ${exactNumber(inForce[key])}`).join(", ") : "no longer in force";
  const overflow = inForce.overflow ?? "drop-head again";
  const sentences = {
    maxlen: `The limit is ${limit}; overflow drop-head drops the oldest messages.`,
    refused: `The limit is ${limit}; overflow is ${overflow}. ${toldOf(stats)}`,
    expired: expiry(inForce["message-ttl"]),
    rejected: "A consumer rejected them without requeueing.",
    delivery_limit: `They were requeued more often than is allowed: ${allowed(inForce)}.`,
    purged: "The queue was purged.",
  };
  return sentences[reason];
}

function toldOf({ refuse: refused, refuse_told: told }) {
  if (told === refused) return "The publishers were told, by confirms, a transaction or the answer over HTTP.";
  return told === 0 ? "The publishers do not know it: they use no confirms." : `The publishers of ${exactNumber(told)} were told; others use no confirms.`;
}

function allowed(inForce) {
  const keys = ["delivery-limit", "redelivery-limit"].filter((key) => key in inForce);
  return keys.length > 0 ? keys.map((key) => `${key} ${exactNumber(inForce[key])}`).join(", ") : "delivery-limit 20 by default";
}

function expiry(ttl) {
  if (ttl === undefined) return "The messages had an expiration property.";
  const time = ttl < 1000 ? `${ttl} ms` : span(ttl / 1000);
  return `message-ttl is ${time}; messages may also have an expiration property.`;
}

function deadLetterTo(reason, inForce, vhost, missing) {
  if (!DEAD_LETTER_REASONS.includes(reason)) return null;
  const exchange = inForce["dead-letter-exchange"];
  if (exchange === undefined) return " The queue has no dead-letter-exchange.";
  if (missing !== null) return ` There is no exchange ${missing} for dead letters, so they are lost.`;
  const link = h("a", { href: exchangeAddress(vhost, exchange) }, exchange || "(AMQP default)");
  return [" Dead letters go to exchange ", link, "."];
}

function series(history) {
  const now = Date.now();
  const grown = (field) => growth(history, field, now);
  const letters = sum(DEAD_LETTER_REASONS.map((reason) => grown(`dead_letter_${reason}`)));
  const lost = sum(DEAD_LETTER_REASONS.map((reason) => grown(`dead_letter_lost_${reason}`)));
  const left = REASONS.map(([, label, field]) => [label, grown(field)]);
  return [...left, ["Dead-lettered", letters], ["Dead letters lost", lost]]
    .map(([label, points], index) => ({ label, points, colour: index + 1 }))
    .filter(({ points }) => points.some(({ value }) => value > 0));
}

/** Return the increases of a counter between samples, and since the last sample, which may be half an hour old. */
function growth(history, field, now) {
  const points = levels(history[`${field}_details`]);
  if (points.length > 0 && now > points.at(-1).at) points.push({ at: now, value: history[field] });
  return points.slice(1).map(({ at, value }, index) => ({ at, value: Math.max(0, value - points[index].value) }));
}

function sum(series) {
  return series[0].map(({ at }, place) => ({ at, value: series.reduce((total, points) => total + points[place].value, 0) }));
}
