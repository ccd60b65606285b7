/**
 * Client of the broker's HTTP API. The session is in a cookie that scripts cannot read.
 */

const TIMEOUT_MS = 20_000;

/** Error response of the API. */
export class ApiError extends Error {
  /**
   * @param {number} status the HTTP status
   * @param {string} error error code, such as `bad_request`
   * @param {string} reason reason from the response
   */
  constructor(status, error, reason) {
    super(reason);
    this.name = "ApiError";
    this.status = status;
    this.error = error;
  }

  /** @returns {boolean} whether the session has ended; a 401 for missing permissions has an error code */
  get isLoggedOut() {
    return this.status === 401 && this.error === "";
  }
}

/** The broker did not respond. */
export class ConnectionLost extends Error {
  constructor() {
    super("The broker does not answer.");
    this.name = "ConnectionLost";
  }
}

/**
 * Return a path of the API, relative to the page so that it works with any path prefix.
 *
 * @param {string[]} segments path segments, not encoded: `["queues", "/", "a name"]`
 * @param {Object<string, *>} [query] query parameters; null, undefined and "" are omitted
 * @returns {string} `api/queues/%2F/a%20name?…`
 */
export function apiPath(segments, query = {}) {
  const parameters = Object.entries(query).filter(([, value]) => value !== null && value !== undefined && value !== "");
  const search = new URLSearchParams(parameters).toString();
  return `api/${segments.map(encodeURIComponent).join("/")}${search === "" ? "" : `?${search}`}`;
}

/** Sends requests to the API. All methods reject with ApiError, ConnectionLost, or AbortError if the signal is aborted. */
export class Api {
  /**
   * @param {AbortSignal} [signal] aborts pending requests, for example when a page is left
   * @param {function(): void} [ended] called when a response shows that the session has ended
   */
  constructor(signal, ended = () => {}) {
    this.signal = signal;
    this.ended = ended;
  }

  /** Read an object or a list: `api.get(["queues", vhost, name], {lengths_age: 60})`. */
  get(segments, query) {
    return this.request("GET", segments, { query });
  }

  /** Create or replace an object. */
  put(segments, body = {}) {
    return this.request("PUT", segments, { body });
  }

  /** Perform an action, for example publish a message. */
  post(segments, body = {}) {
    return this.request("POST", segments, { body });
  }

  /** Delete an object. `headers` may contain X-Reason. */
  delete(segments, query, headers) {
    return this.request("DELETE", segments, { query, headers });
  }

  /**
   * Send a request.
   *
   * @param {string} method HTTP method
   * @param {string[]} segments path segments after api/
   * @param {{query?: Object, body?: *, json?: string, headers?: Object, form?: Object, exact?: boolean,
   *   asBlob?: boolean, abort?: AbortSignal, timeout?: number}} [parts] `body` is encoded as JSON, `json` is already JSON,
   *   `form` is sent as a form; `exact`: see keepDigits(); `asBlob`: the response is a file; `abort`: ends the request;
   *   `timeout`: in milliseconds
   * @returns {Promise<*>} the decoded response; null if it is empty
   */
  async request(method, segments, { query, body, json = body && JSON.stringify(body), headers, form, exact = false, asBlob = false, abort, timeout = TIMEOUT_MS } = {}) {
    const init = { method, headers: { "X-Leveret-UI": "1", ...headers }, cache: "no-store", signal: this.requestSignal(abort, timeout) };
    if (form !== undefined) init.body = new URLSearchParams(form);
    if (json !== undefined) {
      init.body = json;
      init.headers["Content-Type"] = "application/json";
    }
    let status, text;
    try {
      const response = await fetch(apiPath(segments, query), init);
      if (asBlob && response.ok) return await response.blob();
      [status, text] = [response.status, await response.text()];
    } catch (error) {
      if (this.signal?.aborted) throw this.signal.reason;
      throw new ConnectionLost();
    }
    try {
      return parseResponse(status, text, exact);
    } catch (error) {
      if (error.isLoggedOut) this.ended();
      throw error;
    }
  }

  requestSignal(abort, timeout) {
    return AbortSignal.any([this.signal, abort, AbortSignal.timeout(timeout)].filter((each) => each !== undefined));
  }
}

function parseResponse(status, text, exact) {
  let document = null;
  try {
    document = text === "" ? null : JSON.parse(text, exact ? keepDigits : undefined);
  } catch {
    document = { error: "", reason: text };
  }
  if (status < 400) return document;
  const fallback = status === 401 ? "You are no longer logged in." : `HTTP status ${status}`;
  throw new ApiError(status, document?.error ?? "", reasonText(document?.reason) || fallback);
}

/** Keep the digits of integers that are too large for JavaScript numbers; JSON.stringify() writes the same digits. */
function keepDigits(key, value, context) {
  const isRounded = Number.isInteger(value) && !Number.isSafeInteger(value) && /^-?\d+$/.test(context?.source);
  return isRounded ? (JSON.rawJSON?.(context.source) ?? value) : value;
}

/** Return a reason as text. Reasons are strings, or lists for Erlang terms. */
function reasonText(reason) {
  if (Array.isArray(reason)) return reason.map(reasonText).join(": ");
  return typeof reason === "string" ? reason : reason === undefined ? "" : JSON.stringify(reason);
}
