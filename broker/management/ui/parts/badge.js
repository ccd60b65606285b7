/** Small marks and bars. */

import { h } from "./element.js";

/**
 * A short mark that explains itself on hover and to screen readers.
 *
 * @param {string} text what it shows, for example `DLX`
 * @param {string} title what that means, for example `dead-letter-exchange: late`
 * @param {"plain"|"good"|"warning"|"bad"} [kind] how it looks
 * @returns {HTMLElement}
 */
export function badge(text, title, kind = "plain") {
  return h("abbr", { class: `badge ${kind}`, title }, text);
}

/**
 * How full something is. From 80% on it warns, from 100% on it is red.
 *
 * @param {number} used what there is
 * @param {number|null} limit what there may be; without one there is no bar
 * @param {function(number): string} format writes both
 * @param {{label?: string, note?: string}} [words] `label`: what is measured, for screen readers; `note`: added on hover
 * @returns {HTMLElement}
 */
export function fillBar(used, limit, format, { label = "Used", note = "" } = {}) {
  if (!(limit >= 0) || limit === null) return h("span", { class: "muted" }, "no limit");
  const share = limit === 0 ? 1 : used / limit;
  const text = `${format(used)} of ${format(limit)}, ${inPercent(share)}`;
  return bar(share, note === "" ? text : `${text} (${note})`, `${label}: ${text}`);
}

/**
 * The same where only the share is known.
 *
 * @param {number|null} percent null without a limit
 * @param {string} [label] what is measured, for screen readers
 * @returns {HTMLElement}
 */
export function percentBar(percent, label = "Used") {
  if (percent === null || percent === undefined) return h("span", { class: "muted" }, "no limit");
  const text = inPercent(percent / 100);
  return bar(percent / 100, `${text} of the limit that is nearest`, `${label}: ${text}`);
}

function inPercent(share) {
  return `${share >= 0.9995 || share < 0.0005 ? Math.round(share * 100) : Number((share * 100).toPrecision(2))}%`;
}

function bar(share, title, label) {
  const kind = share >= 1 ? "full" : share >= 0.8 ? "nearly" : "";
  return h(
    "span",
    { class: `fill ${kind}`, title, role: "img", "aria-label": label },
    h("span", { class: "fill-track" }, h("span", { class: "fill-used", style: { "--share": `${Math.min(100, share * 100)}%` } })),
    h("span", { class: "fill-text", "aria-hidden": "true" }, inPercent(share)),
  );
}
