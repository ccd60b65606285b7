/**
 * User preferences in the browser's local storage: theme, refresh interval, columns. Contains no secrets.
 */

const PREFIX = "leveret.";

/**
 * Read a preference.
 *
 * @param {string} name of the preference
 * @param {*} fallback value if none is stored, or the stored one is invalid
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
 * Store a preference, if the browser allows it.
 *
 * @param {string} name of the preference
 * @param {*} value any JSON value
 */
export function setPreference(name, value) {
  try {
    localStorage.setItem(PREFIX + name, JSON.stringify(value));
  } catch {
    // Storage is full or disabled: the preference is used until the page is reloaded.
  }
}
