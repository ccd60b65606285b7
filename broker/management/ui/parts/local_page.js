/** Filters, sorts and pages lists that the API returns as a whole. */

import { ApiError } from "./api.js";

/**
 * Return the page of a list that a table requests.
 *
 * @param {Object[]} list all objects, in default order
 * @param {Object} query query of Table: page, page_size, name, use_regex, sort (a dotted path), sort_reverse
 * @param {function(Object): string} [name] returns the text that the filter applies to
 * @returns {Object} page in the form of the API: items, total_count, filtered_count, page, page_count
 * @throws {ApiError} the filter is not a regular expression, as in the API
 */
export function localPage(list, query, name = (object) => object.name) {
  const fits = query.use_regex ? matcher(query.name) : (text) => text.toLowerCase().includes(query.name.toLowerCase());
  const found = list.filter((object) => fits(name(object)));
  if (query.sort) found.sort((one, other) => compare(valueAt(one, query.sort), valueAt(other, query.sort)));
  if (query.sort_reverse) found.reverse();
  const pages = Math.max(1, Math.ceil(found.length / query.page_size));
  const page = Math.min(query.page, pages);
  const start = (page - 1) * query.page_size;
  return {
    items: found.slice(start, start + query.page_size),
    total_count: list.length,
    filtered_count: found.length,
    page,
    page_count: pages,
  };
}

function matcher(pattern) {
  try {
    const expression = new RegExp(pattern, "i");
    return (text) => expression.test(text);
  } catch (error) {
    throw new ApiError(400, "bad_request", error.message);
  }
}

function valueAt(object, path) {
  return path.split(".").reduce((value, key) => value?.[key], object);
}

/** Compare numbers by value and other values as text. Missing values come first. */
function compare(one, other) {
  if (typeof one === "number" && typeof other === "number") return one - other;
  return String(one ?? "").localeCompare(String(other ?? ""), "en");
}
