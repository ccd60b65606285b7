/**
 * Numbers and times for people. Those that shorten a value have the exact one as a title.
 */

import { h } from "./element.js";

const grouped = new Intl.NumberFormat("en-GB");
const DASH = "–";
const UNITS = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]];
const BYTES = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
const SPANS = [["d", 86_400], ["h", 3600], ["m", 60], ["s", 1]];

/** @returns {boolean} whether a value is a number that can be shown; the API has texts and null beside numbers */
export function isNumber(value) {
  return typeof value === "number" && Number.isFinite(value);
}

/** 1234567 as "1.23M"; below 10,000 exactly. */
export function shortNumber(value) {
  if (!isNumber(value)) return DASH;
  const size = Math.abs(value);
  if (size < 10_000) return grouped.format(Number.isInteger(value) ? value : Number(value.toPrecision(3)));
  const [unit, letter] = UNITS.find(([least]) => size >= least * 0.9995);
  return `${(value / unit).toPrecision(3)}${letter}`;
}

/** 1234567 as "1,234,567". */
export function exactNumber(value) {
  return isNumber(value) ? grouped.format(value) : DASH;
}

/** 1536 as "1.5 KiB". */
export function shortBytes(value) {
  if (!isNumber(value)) return DASH;
  let [scaled, unit] = [value, 0];
  while (Math.abs(scaled) >= 1023.5 && unit < BYTES.length - 1) {
    scaled /= 1024;
    unit += 1;
  }
  return `${unit === 0 || Math.abs(scaled) >= 100 ? Math.round(scaled) : Number(scaled.toPrecision(3))} ${BYTES[unit]}`;
}

/** 12.34 as "12/s". */
export function shortRate(value) {
  if (!isNumber(value)) return DASH;
  return `${Math.abs(value) >= 10 && Math.abs(value) < 10_000 ? grouped.format(Math.round(value)) : shortNumber(value)}/s`;
}

/** 93784 seconds as "1d 2h", the two largest units. */
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

/** Milliseconds since 1970 as local date and time. */
export function dateTime(milliseconds) {
  const date = new Date(milliseconds);
  if (Number.isNaN(date.getTime())) return DASH;
  const two = (number) => String(number).padStart(2, "0");
  const day = `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
  return `${day} ${clock(milliseconds)}`;
}

/** Milliseconds since 1970 as local time of day. */
export function clock(milliseconds) {
  const date = new Date(milliseconds);
  return [date.getHours(), date.getMinutes(), date.getSeconds()].map((part) => String(part).padStart(2, "0")).join(":");
}

/** A value of an argument, header or property as text; texts as they are, all else as JSON. */
export function plain(value) {
  return typeof value === "string" ? value : JSON.stringify(value);
}

/** A number as an element, the exact one on hover. */
export function number(value) {
  return h("span", { class: "number", title: isNumber(value) ? exactNumber(value) : null }, shortNumber(value));
}

/** Bytes as an element, the exact number on hover. */
export function bytes(value) {
  const title = isNumber(value) ? `${exactNumber(value)} bytes` : null;
  return h("span", { class: "number", title }, shortBytes(value));
}

/** A rate per second as an element, the exact one on hover. Of the API: `rate(stats?.publish_details?.rate)`. */
export function rate(value) {
  return h("span", { class: "number", title: isNumber(value) ? `${value} a second` : null }, shortRate(value));
}

/** How long ago something was, the time on hover. @param {number} milliseconds since 1970 */
export function ago(milliseconds) {
  if (!isNumber(milliseconds)) return h("span", null, DASH);
  const seconds = (Date.now() - milliseconds) / 1000;
  return h("span", { class: "number", title: dateTime(milliseconds) }, `${span(seconds)} ago`);
}

/** "1 queue", "1,234 queues". */
export function howMany(count, noun, plural = `${noun}s`) {
  return `${exactNumber(count)} ${count === 1 ? noun : plural}`;
}

/** Yes or no. */
export function yesNo(value) {
  return value ? "yes" : "no";
}
