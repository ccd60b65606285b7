/** Formats payloads as JSON or hexadecimal dump. */

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
