/**
 * Addresses of pages: the part behind #, as in RabbitMQ's UI (`#/queues/%2F/name`), with an optional query behind it.
 */

/**
 * The address of a page.
 *
 * @param {...string} segments names as they are, for example `address("queues", "/", "a name")`
 * @returns {string} for example `#/queues/%2F/a%20name`
 */
export function address(...segments) {
  return `#/${segments.map((segment) => encodeURIComponent(segment)).join("/")}`;
}

/**
 * The address of an exchange; the default one, whose name is empty, has a name there.
 *
 * @param {string} vhost name of the virtual host
 * @param {string} name name of the exchange
 * @returns {string}
 */
export function exchangeAddress(vhost, name) {
  return address("exchanges", vhost, name || "amq.default");
}

/**
 * Take an address apart.
 *
 * @param {string} hash as in `location.hash`
 * @returns {{segments: string[], query: URLSearchParams}} segments decoded
 */
export function parse(hash) {
  const [path, query = ""] = hash.replace(/^#?\/?/, "").split("?", 2);
  return { segments: path === "" ? [] : path.split("/").map(decode), query: new URLSearchParams(query) };
}

function decode(segment) {
  try {
    return decodeURIComponent(segment);
  } catch {
    // A lone percent sign, typed by hand.
    return segment;
  }
}

/**
 * The parameters of an address that fits a pattern.
 *
 * @param {string} pattern for example `queues/:vhost/:name`
 * @param {string[]} segments of an address, decoded
 * @returns {Object<string, string>|null} parameters by name; null if it does not fit
 */
export function match(pattern, segments) {
  const parts = pattern === "" ? [] : pattern.split("/");
  if (parts.length !== segments.length) return null;
  const params = {};
  for (const [index, part] of parts.entries()) {
    if (part.startsWith(":")) params[part.slice(1)] = segments[index];
    else if (part !== segments[index]) return null;
  }
  return params;
}
