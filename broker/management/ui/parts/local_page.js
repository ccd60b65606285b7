/** Pages of lists that the API hands out as a whole: what it does for long lists, done here. */

import { ApiError } from "./api.js";

/**
 * The page of a list that a table asks for.
 *
 * @param {Object[]} list all objects, in the order that counts unless another is asked for
 * @param {Object} query as of Table: page, page_size, name, use_regex, sort (a dotted path), sort_reverse
 * @param {function(Object): string} [name] what the filter looks at
 * @returns {Object} as the API answers: items, total_count, filtered_count, page, page_count
 * @throws {ApiError} as the API does: the filter is not a regular expression (yet)
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

/** Numbers by size, all else as text; what is missing comes first. */
function compare(one, other) {
  if (typeof one === "number" && typeof other === "number") return one - other;
  return String(one ?? "").localeCompare(String(other ?? ""), "en");
}
