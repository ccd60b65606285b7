/** Time series charts, drawn as SVG: lines or stacked areas. */

import { h, patch, s } from "./element.js";
import { clock, dateTime, shortNumber } from "./format.js";

const STEPS = [1, 2, 2.5, 5, 10];
const TIME_STEPS = [5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600, 7200, 14_400, 21_600, 43_200, 86_400];

/**
 * Return round tick values from 0 to at least the given value.
 *
 * @param {number} highest largest value to show
 * @param {number} count approximate number of steps
 * @param {number} [base] 1024 for bytes, for round binary units
 * @returns {number[]} ascending, 0 first
 */
export function valueTicks(highest, count, base = 1000) {
  if (!(highest > 0)) return [0, 1];
  const unit = base ** Math.max(0, Math.floor(Math.log(Math.max(highest, 1)) / Math.log(base)));
  const rough = highest / unit / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = STEPS.find((each) => each * power >= rough * 0.999) * power * unit;
  const ticks = [0];
  while (ticks.at(-1) < highest || ticks.length === 1) ticks.push(Number((step * ticks.length).toPrecision(12)));
  return ticks;
}

/**
 * Return round local times in a range.
 *
 * @param {number} from milliseconds
 * @param {number} to milliseconds
 * @param {number} count maximum number of ticks
 * @returns {number[]}
 */
export function timeTicks(from, to, count) {
  const rough = (to - from) / 1000 / Math.max(1, count);
  const step = (TIME_STEPS.find((each) => each >= rough) ?? TIME_STEPS.at(-1)) * 1000;
  const offset = new Date(to).getTimezoneOffset() * 60_000;
  const ticks = [];
  for (let at = Math.ceil((from - offset) / step) * step + offset; at <= to; at += step) ticks.push(at);
  return ticks;
}

/**
 * Return a function that maps one range linearly to another.
 *
 * @returns {function(number): number}
 */
export function linear(from, to, low, high) {
  const span = to - from || 1;
  return (value) => low + ((value - from) / span) * (high - low);
}

const HEIGHT = 150;
const LEFT = 58;
const RIGHT = 10;
const TOP = 8;
const BOTTOM = 20;
const TICK_ROOM = 90;
const DAY_MS = 86_400_000;

/** Chart whose element is created once; update() draws new values. */
export class Chart {
  /**
   * @param {Object} description
   * @param {string} description.title
   * @param {boolean} [description.stacked] stacked areas instead of lines
   * @param {function(number): string} [description.format] formats values; default shortNumber
   * @param {number} [description.base] 1024 for bytes
   * @param {string} [description.empty] text without data
   */
  constructor({ title, stacked = false, format = shortNumber, base = 1000, empty = "Nothing has been counted yet." }) {
    Object.assign(this, { title, stacked, format, base, empty });
    this.series = [];
    this.chosen = null;
    this.width = 0;
    this.drawing = h("div", { class: "chart-drawing" });
    this.legend = h("ul", { class: "legend" });
    this.element = h("figure", { class: "chart", own: true }, h("figcaption", null, title), this.drawing, this.legend);
    new ResizeObserver(([entry]) => this.resize(entry.contentRect.width)).observe(this.drawing);
  }

  resize(width) {
    if (Math.round(width) === this.width) return;
    this.width = Math.round(width);
    this.draw();
  }

  /**
   * Draw new values.
   *
   * @param {Array<{label: string, points: import("./series.js").Point[], title?: string, colour?: number, limit?: boolean}>} series
   *   `colour`: 1..8, default by position; `limit`: draws a dashed line. All series have points at the same times.
   *   Series without points are omitted.
   */
  update(series) {
    this.series = series.map((each, index) => ({ colour: (index % 8) + 1, ...each })).filter(({ points }) => points.length > 0);
    this.draw();
  }

  get times() {
    return this.series[0]?.points.map(({ at }) => at) ?? [];
  }

  draw() {
    if (this.series.length === 0 || this.times.length < 2) {
      patch(this.drawing, h("p", { class: "muted chart-empty" }, this.empty));
      patch(this.legend);
    } else if (this.width > 0) {
      this.measure();
      patch(this.drawing, this.makeDrawing());
      this.showLegend();
    }
  }

  measure() {
    const tops = this.series.flatMap(({ points, limit }, index) => points.map(({ value }, place) => (this.stacked && !limit ? this.below(index + 1, place) : value)));
    this.values = valueTicks(Math.max(...tops), 3, this.base);
    this.x = linear(this.times[0], this.times.at(-1), LEFT, this.width - RIGHT);
    this.y = linear(0, this.values.at(-1), HEIGHT - BOTTOM, TOP);
  }

  /** Return the sum of the first `count` series at a position. */
  below(count, place) {
    let sum = 0;
    for (const { points, limit } of this.series.slice(0, count)) sum += limit ? 0 : (points[place]?.value ?? 0);
    return sum;
  }

  makeDrawing() {
    const on = {
      pointermove: (event) => this.choose(this.placeAt(event)),
      pointerleave: () => this.choose(null),
      blur: () => this.choose(null),
      keydown: (event) => this.step(event),
    };
    return s(
      "svg",
      { role: "img", "aria-label": this.summary(), tabindex: "0", width: this.width, height: HEIGHT, viewBox: `0 0 ${this.width} ${HEIGHT}`, on },
      this.makeGrid(),
      // The first series is the most important one and is drawn on top.
      this.series.map((series, index) => this.makeShape(series, index)).reverse(),
      this.makeMark(),
    );
  }

  makeGrid() {
    const right = this.width - RIGHT;
    const rows = this.values.map((value) => [
      s("line", { class: "grid", x1: LEFT, x2: right, y1: this.y(value), y2: this.y(value) }),
      s("text", { class: "axis value", x: LEFT - 6, y: this.y(value) + 4 }, this.format(value)),
    ]);
    const [from, to] = [this.times[0], this.times.at(-1)];
    const ticks = timeTicks(from, to, (this.width - LEFT - RIGHT) / TICK_ROOM);
    const room = to - from > DAY_MS ? 60 : 28;
    const write = to - from <= 600_000 ? clock : (at) => clock(at).slice(0, 5);
    const columns = ticks.filter((at) => this.x(at) <= this.width - room).map((at) => s("text", { class: "axis time", x: this.x(at), y: HEIGHT - 5 }, to - from > DAY_MS ? dateTime(at) : write(at)));
    return s("g", { "aria-hidden": "true" }, rows, columns);
  }

  makeShape({ points, colour, limit }, index) {
    const line = (value) => points.map((point, place) => `${this.x(point.at).toFixed(1)},${this.y(value(point, place)).toFixed(1)}`);
    if (limit || !this.stacked) {
      return s("path", { class: `line colour-${colour} ${limit ? "limit" : ""}`, d: `M${line(({ value }) => value).join("L")}` });
    }
    if (points.every(({ value }) => value === 0)) return null;
    const top = line((_, place) => this.below(index + 1, place));
    const bottom = line((_, place) => this.below(index, place)).reverse();
    return s("path", { class: `area colour-${colour}`, d: `M${top.join("L")}L${bottom.join("L")}Z` });
  }

  makeMark() {
    if (this.chosen === null) return null;
    const at = this.x(this.times[this.chosen]);
    return s("line", { class: "mark", x1: at, x2: at, y1: TOP, y2: HEIGHT - BOTTOM });
  }

  placeAt(event) {
    const wanted = event.clientX - this.drawing.getBoundingClientRect().left;
    const distances = this.times.map((at) => Math.abs(this.x(at) - wanted));
    return distances.indexOf(Math.min(...distances));
  }

  step(event) {
    const steps = { ArrowLeft: -1, ArrowRight: 1 };
    if (!(event.key in steps)) return;
    event.preventDefault();
    const last = this.times.length - 1;
    this.choose(Math.min(last, Math.max(0, (this.chosen ?? last + 1) + steps[event.key])));
  }

  choose(place) {
    if (place === this.chosen) return;
    this.chosen = place;
    this.draw();
  }

  showLegend() {
    const place = Math.min(this.chosen ?? this.times.length - 1, this.times.length - 1);
    const rows = this.series.map(({ label, title, points, colour, limit }) =>
      h(
        "li",
        { key: label, title: title ?? null },
        h("span", { class: `swatch colour-${colour} ${limit ? "limit" : ""}` }),
        `${label} `,
        h("b", { class: "number" }, this.format(points[place]?.value)),
      ),
    );
    const time = this.chosen === null ? null : h("li", { key: " time", class: "muted" }, `at ${clock(this.times[place])}`);
    patch(this.legend, rows, time);
  }

  /** Return a description of the chart for screen readers. */
  summary() {
    const parts = this.series.map(({ label, points }) => {
      const values = points.map(({ value }) => value);
      return `${label}: now ${this.format(values.at(-1))}, lowest ${this.format(Math.min(...values))}, highest ${this.format(Math.max(...values))}`;
    });
    return `${this.title} from ${clock(this.times[0])} to ${clock(this.times.at(-1))}. ${parts.join("; ")}. Arrow keys show single values.`;
  }
}
