/** One message that was got from a queue: its properties, where it died before, and its payload in several readings. */

import { address, exchangeAddress } from "../parts/address.js";
import { h } from "../parts/element.js";
import { bytes, dateTime, exactNumber, plain } from "../parts/format.js";
import { plainTable, properties, valueTable } from "../parts/layout.js";
import { hexDump, prettyJson } from "../parts/payload.js";

/**
 * Show a message.
 *
 * @param {Object} message as in the API
 * @param {string} title for example "Message 1"
 * @param {string} vhost that its names are of
 * @returns {HTMLElement}
 */
export function messageView(message, title, vhost) {
  const { headers = {}, ...others } = message.properties ?? {};
  const deaths = readDeaths(headers);
  const shown = Object.fromEntries(Object.entries(headers).filter(([name]) => name !== "x-death" || deaths === null));
  return h(
    "article",
    { class: "message", "aria-label": title },
    h("h3", null, title),
    properties([
      ["Exchange", h("a", { href: exchangeAddress(vhost, message.exchange) }, message.exchange || "(AMQP default)")],
      ["Routing key", message.routing_key === "" ? h("span", { class: "muted" }, "empty") : message.routing_key],
      ["Redelivered", message.redelivered ? "yes: it has been delivered or got before" : "no"],
      ["Properties", valueTable(inWords(others))],
      ["Headers", valueTable(shown)],
    ]),
    deaths ? deathTable(deaths, vhost) : null,
    payloadView(message),
  );
}

function inWords(given) {
  const modes = { 1: "1 (transient)", 2: "2 (persistent)" };
  return Object.fromEntries(
    Object.entries(given).map(([name, value]) => {
      if (name === "delivery_mode") return [name, modes[value] ?? value];
      if (name === "timestamp" && typeof value === "number") return [name, `${value} (${dateTime(value * 1000)})`];
      return [name, value];
    }),
  );
}

// -- where it died ----------------------------------------------------------------------------------------

/** @returns {Object[]|null} the entries of x-death; null if there is none, or somebody has written nonsense there */
function readDeaths({ "x-death": deaths }) {
  const isTable = Array.isArray(deaths) && deaths.length > 0 && deaths.every((each) => each !== null && typeof each === "object" && !Array.isArray(each));
  return isTable ? deaths : null;
}

function deathTable(deaths, vhost) {
  const headings = ["Died in queue", "Why", { label: "How often", numeric: true }, "First at", "Published to exchange", "With routing keys"];
  const rows = deaths.map((death, index) => ({ key: String(index), cells: deathCells(death, vhost) }));
  return h("div", { class: "beside" }, h("p", null, "Where it died (x-death), the latest first:"), plainTable("x-death", headings, rows));
}

function deathCells({ queue, reason, count, time, exchange, "routing-keys": keys, "original-expiration": expiration }, vhost) {
  return [
    typeof queue === "string" && queue !== "" ? h("a", { href: address("queues", vhost, queue) }, queue) : text(queue),
    [text(reason), expiration === undefined ? null : h("span", { class: "muted" }, ` (expiration was ${text(expiration)} ms)`)],
    typeof count === "number" ? exactNumber(count) : text(count),
    typeof time === "number" ? dateTime(time * 1000) : text(time),
    text(exchange) || "(AMQP default)",
    Array.isArray(keys) ? keys.map(text).join(", ") : text(keys),
  ];
}

function text(value) {
  return value === undefined ? "" : plain(value);
}

// -- payload ----------------------------------------------------------------------------------------------

/** A payload as whatever it can be read as. */
function payloadView({ payload, payload_encoding: encoding, payload_bytes: size }) {
  const octets = encoding === "base64" ? fromBase64(payload) : new TextEncoder().encode(payload);
  const isCut = octets.length < size;
  const words = encoding === "base64" ? readText(octets, isCut) : payload;
  const json = isCut || words === null ? null : prettyJson(words);
  const readings = [
    ["JSON", json],
    ["Text", words],
    ["Hex", ""],
  ].filter(([, content]) => content !== null);
  const content = h("pre", { class: "payload", tabindex: "0", role: "region", "aria-label": "Payload" });
  const buttons = readings.map(([name, given]) => h("button", { type: "button", class: "chip", on: { click: () => show(name, given) } }, name));
  const show = (name, given) => {
    content.textContent = name === "Hex" ? hexDump(octets) : given;
    for (const button of buttons) button.setAttribute("aria-pressed", String(button.textContent === name));
  };
  const isBinary = words === null || /[\0-\x08\x0b\x0c\x0e-\x1f]/.test(words);
  show(...(isBinary ? readings.at(-1) : readings[0]));
  const said = [bytes(size), isCut ? `, of which ${exactNumber(octets.length)} are shown` : null];
  return h("div", { class: "beside" }, h("p", { class: "chips" }, h("span", null, "Payload, ", said, size === 0 ? ": it is empty" : null), size === 0 ? null : buttons), size === 0 ? null : content);
}

function fromBase64(text) {
  return Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
}

/** @returns {string|null} null if the bytes are no UTF-8; a character that was cut off at the end does not count */
function readText(octets, isCut) {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(octets, { stream: isCut });
  } catch {
    return null;
  }
}
