/**
 * Formats numbers and times. Elements with a shortened value have the exact value as title.
 */

import { h } from "./element.js";

const grouped = new Intl.NumberFormat("en-GB");
const DASH = "–";
const UNITS = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]];
const BYTES = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
const SPANS = [["d", 86_400], ["h", 3600], ["m", 60], ["s", 1]];

/** @returns {boolean} whether a value is a finite number; the API may return strings and null in place of numbers */
export function isNumber(value) {
  return typeof value === "number" && Number.isFinite(value);
}

/** Format 1234567 as "1.23M"; exact below 10,000. */
export function shortNumber(value) {
  if (!isNumber(value)) return DASH;
  const size = Math.abs(value);
  if (size < 10_000) return grouped.format(Number.isInteger(value) ? value : Number(value.toPrecision(3)));
  const [unit, letter] = UNITS.find(([least]) => size >= least * 0.9995);
  return `${(value / unit).toPrecision(3)}${letter}`;
}

/** Format 1234567 as "1,234,567". */
export function exactNumber(value) {
  return isNumber(value) ? grouped.format(value) : DASH;
}

/** Format 1536 bytes as "1.5 KiB". */
export function shortBytes(value) {
  if (!isNumber(value)) return DASH;
  let [scaled, unit] = [value, 0];
  while (Math.abs(scaled) >= 1023.5 && unit < BYTES.length - 1) {
    scaled /= 1024;
    unit += 1;
  }
  return `${unit === 0 || Math.abs(scaled) >= 100 ? Math.round(scaled) : Number(scaled.toPrecision(3))} ${BYTES[unit]}`;
}

/** Format 12.34 as "12/s". */
export function shortRate(value) {
  if (!isNumber(value)) return DASH;
  return `${Math.abs(value) >= 10 && Math.abs(value) < 10_000 ? grouped.format(Math.round(value)) : shortNumber(value)}/s`;
}

/** Format 93784 seconds as "1d 2h", in the two largest units. */
export function span(seconds) {
  if (!isNumber(seconds)) return DASH;
  let left = Math.max(0, Math.round(seconds));
  const parts = [];
  for (const [letter, size] of SPANS) {
    if (left >= size || (letter === "s" && parts.length === 0)) parts.push(`${Math.floor(left / size)}${letter}`);
    else if (parts.length > 0) break;
    left %= size;
    if (parts.length === 2) break;
  }
  return parts.join(" ");
}

/** Format milliseconds since 1970 as local date and time. */
export function dateTime(milliseconds) {
  const date = new Date(milliseconds);
  if (Number.isNaN(date.getTime())) return DASH;
  const two = (number) => String(number).padStart(2, "0");
  const day = `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
  return `${day} ${clock(milliseconds)}`;
}

/** Format milliseconds since 1970 as local time of day. */
export function clock(milliseconds) {
  const date = new Date(milliseconds);
  return [date.getHours(), date.getMinutes(), date.getSeconds()].map((part) => String(part).padStart(2, "0")).join(":");
}

/** Return the value of an argument, header or property as text: strings unchanged, other values as JSON. */
export function plain(value) {
  return typeof value === "string" ? value : JSON.stringify(value);
}

/** Return text with places after its separators where a line may end, as in "payments.settlement.retry". */
export function withLineEnds(text) {
  return text.split(/(?<=[._/:@,-])/).flatMap((part, index) => (index === 0 ? [part] : [h("wbr"), part]));
}

/** Make an element with a name, which is broken at its separators if the space is narrow. */
export function nameText(name) {
  return h("span", { class: "name-text" }, withLineEnds(name));
}

/** Make an element with date and time, on two lines if the space is narrow. @param {number} milliseconds since 1970 */
export function moment(milliseconds) {
  const [day, time = ""] = dateTime(milliseconds).split(" ");
  return [h("span", { class: "number" }, day), " ", h("span", { class: "number" }, time)];
}

/** Make an element with a number; the exact value is shown on hover. */
export function number(value) {
  return h("span", { class: "number", title: isNumber(value) ? exactNumber(value) : null }, shortNumber(value));
}

/** Make an element with a number of bytes; the exact value is shown on hover. */
export function bytes(value) {
  const title = isNumber(value) ? `${exactNumber(value)} bytes` : null;
  return h("span", { class: "number", title }, shortBytes(value));
}

/** Make an element with a rate per second, as in `rate(stats?.publish_details?.rate)`; the exact value is shown on hover. */
export function rate(value) {
  return h("span", { class: "number", title: isNumber(value) ? `${value} a second` : null }, shortRate(value));
}

/** Make an element with the time since an event; the date is shown on hover. @param {number} milliseconds since 1970 */
export function ago(milliseconds) {
  if (!isNumber(milliseconds)) return h("span", null, DASH);
  const seconds = (Date.now() - milliseconds) / 1000;
  return h("span", { class: "number", title: dateTime(milliseconds) }, `${span(seconds)} ago`);
}

/** Format a count with its noun: "1 queue", "1,234 queues". */
export function countedNoun(count, noun, plural = `${noun}s`) {
  return `${exactNumber(count)} ${count === 1 ? noun : plural}`;
}

/** Format a boolean as "yes" or "no". */
export function yesNo(value) {
  return value ? "yes" : "no";
}
