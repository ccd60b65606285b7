/** Axes: round tick values and linear scales. */

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
