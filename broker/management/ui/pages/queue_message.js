/** View of a fetched message: properties, x-death history, and the payload in several formats. */

import { address, exchangeAddress } from "../parts/address.js";
import { h } from "../parts/element.js";
import { bytes, dateTime, exactNumber, nameText, plain } from "../parts/format.js";
import { plainTable, properties, valueTable } from "../parts/layout.js";

/** Control characters, which do not occur in text. */
const CONTROLS = /[\0-\x08\x0b\x0c\x0e-\x1f]/;

/**
 * Show a message.
 *
 * @param {Object} message message as in the API
 * @param {string} title for example "Message 1"
 * @param {string} vhost virtual host of the names in the message
 * @returns {HTMLElement}
 */
export function messageView(message, title, vhost) {
  const { headers = {}, ...others } = message.properties ?? {};
  const deaths = parseDeaths(headers);
  const shown = Object.fromEntries(Object.entries(headers).filter(([name]) => name !== "x-death" || deaths === null));
  return h(
    "article",
    { class: "message", "aria-label": title },
    h("h3", null, title),
    properties([
      ["Exchange", h("a", { href: exchangeAddress(vhost, message.exchange) }, message.exchange || "(AMQP default)")],
      ["Routing key", message.routing_key === "" ? h("span", { class: "muted" }, "empty") : message.routing_key],
      ["Redelivered", message.redelivered ? "yes: it has been delivered or got before" : "no"],
      ["Properties", valueTable(withReadableValues(others))],
      ["Headers", valueTable(shown)],
    ]),
    deaths ? deathTable(deaths, vhost) : null,
    payloadView(message),
  );
}

function withReadableValues(properties) {
  const modes = { 1: "1 (transient)", 2: "2 (persistent)" };
  return Object.fromEntries(
    Object.entries(properties).map(([name, value]) => {
      if (name === "delivery_mode") return [name, modes[value] ?? value];
      if (name === "timestamp" && typeof value === "number") return [name, `${value} (${dateTime(value * 1000)})`];
      return [name, value];
    }),
  );
}

// -- x-death ----------------------------------------------------------------------------------------------

/** @returns {Object[]|null} the entries of x-death; null if the header is missing or invalid */
function parseDeaths({ "x-death": deaths }) {
  return Array.isArray(deaths) && deaths.length > 0 && deaths.every(isTable) ? deaths : null;
}

function isTable(value) {
  return value !== null && typeof value === "object" && !Array.isArray(value);
}

function deathTable(deaths, vhost) {
  const often = { label: "How often", numeric: true };
  const headings = ["Died in queue", "Why", often, "First at", "Published to exchange", "With routing keys"];
  const rows = deaths.map((death, index) => ({ key: String(index), cells: deathCells(death, vhost) }));
  const words = h("p", null, "Dead-letter history (x-death), latest first:");
  return h("div", { class: "beside" }, words, plainTable("x-death", headings, rows));
}

function deathCells(death, vhost) {
  const { queue, reason, count, time, exchange, "routing-keys": keys, "original-expiration": expiration } = death;
  const before = expiration === undefined ? null : h("span", { class: "muted" }, ` (expiration was ${text(expiration)} ms)`);
  return [
    typeof queue === "string" && queue !== "" ? h("a", { href: address("queues", vhost, queue) }, nameText(queue)) : text(queue),
    [text(reason), before],
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

/** Show a payload in the formats that apply to it. */
function payloadView({ payload, payload_encoding: encoding, payload_bytes: size }) {
  if (size === 0) return h("p", { class: "beside" }, "The payload is empty.");
  const octets = encoding === "base64" ? fromBase64(payload) : new TextEncoder().encode(payload);
  const isCut = octets.length < size;
  const words = encoding === "base64" ? readText(octets, isCut) : payload;
  const content = h("pre", { class: "payload", tabindex: "0", role: "region", "aria-label": "Payload" });
  const buttons = formatButtons(content, octets, words, isCut);
  const caption = ["Payload, ", bytes(size), isCut ? `, of which ${exactNumber(octets.length)} are shown` : null];
  return h("div", { class: "beside" }, h("p", { class: "chips" }, h("span", null, caption), buttons), content);
}

/** Make a button per format; the most specific one is shown initially. */
function formatButtons(content, octets, words, isCut) {
  const json = isCut || words === null ? null : prettyJson(words);
  const formats = [["JSON", () => json], ["Text", () => words], ["Hex", () => hexDump(octets)]];
  const possible = formats.filter(([name]) => (name === "JSON" ? json !== null : name === "Hex" || words !== null));
  const show = ([name, read]) => {
    content.textContent = read();
    for (const button of buttons) button.setAttribute("aria-pressed", String(button.textContent === name));
  };
  const buttons = possible.map((reading) =>
    h("button", { type: "button", class: "chip", on: { click: () => show(reading) } }, reading[0]),
  );
  show(words === null || CONTROLS.test(words) ? possible.at(-1) : possible[0]);
  return buttons;
}

function fromBase64(text) {
  return Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
}

/** @returns {string|null} null if the bytes are not UTF-8; a truncated character at the end is allowed */
function readText(octets, isCut) {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(octets, { stream: isCut });
  } catch {
    return null;
  }
}

const LINE = 16;
/** Maximum nesting depth. Indentation grows quadratically: 50,000 nested brackets would take more than a gigabyte. */
const DEEPEST = 100;
const TOKENS = /"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s{}[\],:"]+/g;
const OPENING = "{[";
const CLOSING = "}]";

/**
 * Add line breaks and indentation to JSON. Numbers keep their digits, because JavaScript numbers would lose precision.
 *
 * @param {string} text
 * @returns {string|null} null if the text is not a JSON object or list, or nested too deeply
 */
export function prettyJson(text) {
  if (!/^\s*[{[]/.test(text)) return null;
  try {
    JSON.parse(text);
  } catch {
    return null;
  }
  return indent(text.match(TOKENS));
}

function indent(tokens) {
  const parts = [];
  let depth = 0;
  const breakLine = () => parts.push(`\n${"  ".repeat(depth)}`);
  for (const [place, token] of tokens.entries()) {
    const isEmpty = OPENING.includes(tokens[place - 1] ?? " ");
    if (CLOSING.includes(token)) {
      depth -= 1;
      if (!isEmpty) breakLine();
    }
    parts.push(token === ":" ? ": " : token);
    if (OPENING.includes(token)) depth += 1;
    if (depth > DEEPEST) return null;
    const isFollowed = OPENING.includes(token) && !CLOSING.includes(tokens[place + 1]);
    if (isFollowed || token === ",") breakLine();
  }
  return parts.join("");
}

/**
 * Return a hexadecimal dump with 16 bytes per line, with the offset before and the ASCII characters after them.
 *
 * @param {Uint8Array} octets
 * @returns {string}
 */
export function hexDump(octets) {
  const lines = [];
  for (let start = 0; start < octets.length; start += LINE) {
    const line = [...octets.subarray(start, start + LINE)];
    const digits = line.map((octet) => octet.toString(16).padStart(2, "0")).join(" ");
    const letters = line.map((octet) => (octet >= 0x20 && octet < 0x7f ? String.fromCharCode(octet) : ".")).join("");
    lines.push(`${start.toString(16).padStart(6, "0")}  ${digits.padEnd(LINE * 3 - 1)}  ${letters}`);
  }
  return lines.join("\n");
}
