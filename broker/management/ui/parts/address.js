/**
 * Addresses of pages: the URL fragment, as in RabbitMQ's UI (`#/queues/%2F/name`), with an optional query.
 */

/**
 * Return the address of a page.
 *
 * @param {...string} segments path segments, not encoded, for example `address("queues", "/", "a name")`
 * @returns {string} for example `#/queues/%2F/a%20name`
 */
export function address(...segments) {
  return `#/${segments.map((segment) => encodeURIComponent(segment)).join("/")}`;
}

/**
 * Return the address of an exchange. The default exchange, whose name is empty, is called amq.default there.
 *
 * @param {string} vhost name of the virtual host
 * @param {string} name name of the exchange
 * @returns {string}
 */
export function exchangeAddress(vhost, name) {
  return address("exchanges", vhost, name || "amq.default");
}

/**
 * Parse an address.
 *
 * @param {string} hash value of `location.hash`
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
    // An invalid percent sign in a typed address.
    return segment;
  }
}

/**
 * Match an address against a pattern.
 *
 * @param {string} pattern for example `queues/:vhost/:name`
 * @param {string[]} segments decoded segments of the address
 * @returns {Object<string, string>|null} parameters by name; null if the address does not match
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
