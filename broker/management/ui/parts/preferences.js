/**
 * What the user likes: theme, refresh interval, columns. Nothing that is secret, nothing about who is logged in.
 */

const PREFIX = "leveret.";

/**
 * Read a preference.
 *
 * @param {string} name of the preference
 * @param {*} fallback what counts if none is kept, or what is kept makes no sense
 */
export function preference(name, fallback) {
  try {
    const kept = localStorage.getItem(PREFIX + name);
    return kept === null ? fallback : JSON.parse(kept);
  } catch {
    return fallback;
  }
}

/**
 * Keep a preference, if the browser lets us.
 *
 * @param {string} name of the preference
 * @param {*} value anything that can be JSON
 */
export function prefer(name, value) {
  try {
    localStorage.setItem(PREFIX + name, JSON.stringify(value));
  } catch {
    // Storage is full or forbidden: it holds until the page is loaded again.
  }
}
