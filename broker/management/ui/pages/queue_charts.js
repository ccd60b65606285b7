/** Charts of a queue. */

import { Chart } from "../parts/chart.js";
import { h } from "../parts/element.js";
import { shortRate } from "../parts/format.js";
import { levels, rates } from "../parts/series.js";

const LENGTHS = [
  ["messages_ready", "Ready", "waiting"],
  ["messages_unacknowledged", "Unacked", "delivered, and not acknowledged yet"],
];
const RATES = [
  ["publish", "Publish", "that came in"],
  ["deliver", "Deliver", "delivered to consumers that acknowledge"],
  ["deliver_no_ack", "Deliver (auto ack)", "delivered to consumers that do not acknowledge"],
  ["ack", "Ack", "acknowledged by consumers"],
  ["get", "Get", "fetched one by one"],
  ["redeliver", "Redeliver", "delivered once more"],
  ["drop", "Drop", "removed without being acknowledged: over the limit, expired, rejected"],
  ["refuse", "Refuse", "refused because the queue was full"],
];
/** The limit is drawn from this usage on. A limit far above the values would flatten the chart. */
const SHOW_LIMIT_FROM = 0.4;

/** Fields of a queue that the charts need. */
export const CHART_FIELDS = ["messages_ready_details", "messages_unacknowledged_details", "message_stats"];

/** Charts of queue length and message rates. */
export class QueueCharts {
  constructor() {
    this.lengths = new Chart({ title: "Messages", stacked: true });
    this.rates = new Chart({ title: "Message rates", format: shortRate, empty: "No message has been published or delivered yet." });
    this.element = h("div", { class: "charts", own: true }, this.lengths.element, this.rates.element);
  }

  /** Draw the charts of a queue. @param {Object} queue queue object of the API, with samples */
  update(queue) {
    const lengths = LENGTHS.map(([name, label, title]) => ({ label, title, points: levels(queue[`${name}_details`]) }));
    this.lengths.update([...lengths, ...limitLine(queue.fill, lengths[0].points)]);
    const stats = queue.message_stats ?? {};
    const drawn = RATES.map(([name, label, title], index) => {
      return { label, title, colour: index + 1, points: rates(stats[`${name}_details`]) };
    });
    this.rates.update(drawn);
  }
}

function limitLine(fill, ready) {
  const limit = fill?.max_length ?? null;
  const highest = Math.max(0, ...ready.map(({ value }) => value));
  if (limit === null || highest < limit * SHOW_LIMIT_FROM) return [];
  const points = ready.map(({ at }) => ({ at, value: limit }));
  return [{ label: "Limit", title: `max-length, by ${fill.max_length_source}`, points, limit: true, colour: 8 }];
}
