/**
 * The broker's HTTP API. Who asks is in a cookie that scripts cannot read.
 */

const PATIENCE_MS = 20_000;

/** What the API refused, in its own words. */
export class ApiError extends Error {
  /**
   * @param {number} status the HTTP status
   * @param {string} error its kind, in a word
   * @param {string} reason what the API says
   */
  constructor(status, error, reason) {
    super(reason);
    this.name = "ApiError";
    this.status = status;
    this.error = error;
  }

  /** @returns {boolean} whether nobody is logged in (any more); rights that are missing come with a reason */
  get isLoggedOut() {
    return this.status === 401 && this.error === "";
  }
}

/** There was no answer. */
export class ConnectionLost extends Error {
  constructor() {
    super("The broker does not answer.");
    this.name = "ConnectionLost";
  }
}

/**
 * A path of the API, relative to the page, so that it holds behind any prefix.
 *
 * @param {string[]} segments names as they are: `["queues", "/", "a name"]`
 * @param {Object<string, *>} [query] parameters; null, undefined and "" are left out
 * @returns {string} `api/queues/%2F/a%20name?…`
 */
export function apiPath(segments, query = {}) {
  const given = Object.entries(query).filter(([, value]) => value !== null && value !== undefined && value !== "");
  const search = new URLSearchParams(given).toString();
  return `api/${segments.map(encodeURIComponent).join("/")}${search === "" ? "" : `?${search}`}`;
}

/** Requests to the API. All of them reject with ApiError, ConnectionLost, or AbortError when the signal says so. */
export class Api {
  /**
   * @param {AbortSignal} [signal] ends what is under way, for example when a page is left
   * @param {function(): void} [ended] called when an answer says that nobody is logged in any more
   */
  constructor(signal, ended = () => {}) {
    this.signal = signal;
    this.ended = ended;
  }

  /** Read an object or a list: `api.get(["queues", vhost, name], {lengths_age: 60})`. */
  get(segments, query) {
    return this.request("GET", segments, { query });
  }

  /** Make or replace an object. */
  put(segments, body = {}) {
    return this.request("PUT", segments, { body });
  }

  /** Do something, for example publish a message. */
  post(segments, body = {}) {
    return this.request("POST", segments, { body });
  }

  /** Delete an object. `headers` may hold X-Reason. */
  delete(segments, query, headers) {
    return this.request("DELETE", segments, { query, headers });
  }

  /**
   * Send a request.
   *
   * @param {string} method of HTTP
   * @param {string[]} segments of the path behind api/
   * @param {{query?: Object, body?: *, json?: string, headers?: Object, form?: Object, exact?: boolean}} [parts] `body` goes
   *   as JSON, `json` is JSON already, `form` goes as a form; `exact`: see keepDigits()
   * @returns {Promise<*>} the decoded answer; null if it is empty
   */
  async request(method, segments, { query, body, json = body && JSON.stringify(body), headers, form, exact = false } = {}) {
    const init = { method, headers: { "X-Leveret-UI": "1", ...headers }, cache: "no-store", signal: this.patience() };
    if (form !== undefined) init.body = new URLSearchParams(form);
    if (json !== undefined) {
      init.body = json;
      init.headers["Content-Type"] = "application/json";
    }
    let status, text;
    try {
      const response = await fetch(apiPath(segments, query), init);
      [status, text] = [response.status, await response.text()];
    } catch (error) {
      if (this.signal?.aborted) throw this.signal.reason;
      throw new ConnectionLost();
    }
    try {
      return read(status, text, exact);
    } catch (error) {
      if (error.isLoggedOut) this.ended();
      throw error;
    }
  }

  patience() {
    const timeout = AbortSignal.timeout(PATIENCE_MS);
    return this.signal === undefined ? timeout : AbortSignal.any([this.signal, timeout]);
  }
}

function read(status, text, exact) {
  let document = null;
  try {
    document = text === "" ? null : JSON.parse(text, exact ? keepDigits : undefined);
  } catch {
    document = { error: "", reason: text };
  }
  if (status < 400) return document;
  const unsaid = status === 401 ? "You are not logged in any more." : `HTTP status ${status}`;
  throw new ApiError(status, document?.error ?? "", say(document?.reason) || unsaid);
}

/** Whole numbers that are too large for JavaScript stay as they are written; JSON.stringify() writes them so again. */
function keepDigits(key, value, context) {
  const isRounded = Number.isInteger(value) && !Number.isSafeInteger(value) && /^-?\d+$/.test(context?.source);
  return isRounded ? (JSON.rawJSON?.(context.source) ?? value) : value;
}

/** Reasons are texts, or lists for Erlang terms. */
function say(reason) {
  if (Array.isArray(reason)) return reason.map(say).join(": ");
  return typeof reason === "string" ? reason : reason === undefined ? "" : JSON.stringify(reason);
}
