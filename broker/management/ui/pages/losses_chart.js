/** Chart of the losses over time, for the queues and exchanges with the largest losses. */

import { ApiError } from "../parts/api.js";
import { Chart } from "../parts/chart.js";
import { span } from "../parts/format.js";
import { h, patch } from "../parts/element.js";
import { RANGES, levels, samplesQuery } from "../parts/series.js";

const TOP = 5;

/** Chart of the first rows, with its own requests. */
export class LossesChart {
  /** @param {Object} context context of the page */
  constructor(context) {
    this.context = context;
    this.chart = new Chart({ title: "Losses over time", stacked: true, empty: "There are no samples yet." });
    this.note = h("p", { class: "muted" });
    this.element = h("div", { class: "section", own: true }, this.chart.element, this.note);
  }

  /**
   * Load and draw.
   *
   * @param {Object[]} rows rows of the API, largest losses first
   * @param {number} age length of the range in seconds; there are samples of one day
   */
  async refresh(rows, age) {
    const top = rows.filter(({ state, name }) => state === "present" && name !== null).slice(0, TOP);
    const [reach, increment] = RANGES.find(([each]) => each >= age) ?? RANGES.at(-1);
    const found = await Promise.all(top.map((row) => this.load(row, samplesQuery(reach, increment))));
    const series = top.map((row, index) => ({ label: label(row, top), title: row.vhost, points: steps(found[index]) }));
    this.chart.update(series.filter(({ points }) => points.length > 0));
    patch(this.note, series.length === 0 ? null : `Messages lost per ${span(increment)}, for the existing queues and exchanges with the largest losses.`);
  }

  async load({ kind, vhost, name }, range) {
    try {
      const document = await this.context.api.get([`${kind}s`, vhost, name || "amq.default"], { columns: "loss_stats", ...range });
      return document.loss_stats?.lost_details;
    } catch (error) {
      // Deleted after the list was loaded.
      if (error instanceof ApiError && error.status === 404) return undefined;
      throw error;
    }
  }
}

function label({ kind, vhost, name }, rows) {
  const words = name || "(AMQP default)";
  const isUnique = rows.every((row) => row.name !== name || (row.vhost === vhost && row.kind === kind));
  return isUnique ? words : `${words} (${kind} in ${vhost})`;
}

/** Return the increases of a counter between its samples. */
function steps(details) {
  const points = levels(details);
  return points.slice(1).map(({ at, value }, index) => ({ at, value: Math.max(0, value - points[index].value) }));
}
