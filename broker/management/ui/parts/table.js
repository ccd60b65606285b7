/**
 * A table of objects of the API, which filters, sorts and pages them. Rows are changed in place.
 */

import { ApiError } from "./api.js";
import { ColumnChoice } from "./column_choice.js";
import { h, patch } from "./element.js";
import { exactNumber, howMany } from "./format.js";
import { Pager } from "./pager.js";

const TYPING_MS = 250;
/** How each table was left, so that coming back to its page finds it so. */
const left = new Map();

/**
 * A column.
 *
 * @typedef {Object} Column
 * @property {string} key its name among the columns
 * @property {string} label its heading
 * @property {function(Object): *} cell text, number or node for an object
 * @property {string} [sort] what the API sorts by, for example `message_stats.publish_details.rate`
 * @property {string[]} [fields] what the cell needs of the object, dotted; default: `key`
 * @property {boolean} [numeric] aligned right; sorted from above first
 * @property {boolean} [hidden] not shown unless chosen
 * @property {function(): boolean} [isRedundant] whether it would say the same in all rows just now; then it is left out
 * @property {boolean} [fixed] cannot be hidden: the name; has room for it
 * @property {string} [title] what it means, on hover
 */

/** A table that loads its own rows. */
export class Table {
  /**
   * @param {Object} description
   * @param {string} description.id what its columns are remembered by, and its rows called: "queues"
   * @param {Column[]} description.columns
   * @param {function(Object): string} description.rowKey tells objects apart, for all time
   * @param {function(Object): Promise<Object>} description.load asks the API: takes the query (page, page_size, name,
   *   use_regex, sort, sort_reverse, columns) and returns the page; of a list without pages: a plain list
   * @param {function(): Node} description.empty what is shown if there are no objects at all; see emptyState()
   * @param {string} [description.caption] what there is, for screen readers and in the count; default: id
   * @param {string} [description.one] the same of a single one; default: the caption without its s
   * @param {string} [description.place] what its filter, order and page are remembered by, if there is one such table
   *   for each of many objects; default: id
   * @param {string} [description.sort] key of the column sorted by at first
   * @param {string[]} [description.needs] fields that rows need beside those of the columns
   * @param {string} [description.filterLabel] what the filter looks at; default "Filter by name"
   * @param {boolean} [description.filtered] whether there is a filter; default true
   */
  constructor(description) {
    const caption = description.caption ?? description.id;
    this.description = { caption, one: caption.replace(/s$/, ""), needs: [], filterLabel: "Filter by name", filtered: true, ...description };
    const { id, sort = "", place = id } = this.description;
    this.state = left.get(place) ?? { page: 1, pageSize: 100, name: "", regex: false, sort, reverse: false };
    left.set(place, this.state);
    this.data = null;
    this.choice = new ColumnChoice(id, description.columns, () => this.refresh({ patient: true }));
    this.pager = new Pager(this.state, () => this.turn());
    this.body = h("div", { class: "table-scroll", tabindex: "0", role: "region", "aria-label": this.description.caption });
    this.count = h("span", { class: "muted", role: "status" });
    this.problem = h("span", { class: "field-error", role: "alert" });
    this.element = h("div", { class: "table-part", own: true }, this.makeBar(), this.body, this.pager.element);
  }

  makeBar() {
    const filter = h("input", { type: "search", value: this.state.name, "aria-label": this.description.filterLabel, placeholder: this.description.filterLabel, spellcheck: "false" });
    const regex = h("input", { type: "checkbox", checked: this.state.regex });
    filter.addEventListener("input", () => {
      clearTimeout(this.typing);
      this.typing = setTimeout(() => this.change({ name: filter.value }), TYPING_MS);
    });
    regex.addEventListener("change", () => this.change({ regex: regex.checked }));
    const filters = this.description.filtered ? [filter, h("label", { title: "Case does not matter" }, regex, " regex")] : null;
    return h("div", { class: "table-bar" }, filters, this.count, this.problem, h("span", { class: "spring" }), this.choice.element);
  }

  /** Change the filter or the order; shows the first page. @param {Object} changes of the state */
  change(changes) {
    Object.assign(this.state, { page: 1, ...changes });
    return this.refresh({ patient: true });
  }

  /** Show another page, from its beginning: the pager is at the end. */
  async turn() {
    await this.refresh({ patient: true });
    scrollBy(0, Math.min(0, this.element.getBoundingClientRect().top));
  }

  /**
   * Load and show the rows anew.
   *
   * @param {{patient?: boolean}} [how] `patient`: a failure is shown at the table instead of thrown
   */
  async refresh({ patient = false } = {}) {
    this.asked = (this.asked ?? 0) + 1;
    const asked = this.asked;
    try {
      const answer = await this.description.load(this.query());
      if (asked !== this.asked) return;
      this.data = Array.isArray(answer) ? whole(answer) : answer;
      this.problem.textContent = "";
      this.show();
    } catch (error) {
      if (asked !== this.asked || error.name === "AbortError") return;
      await this.recover(error, patient);
    }
  }

  async recover(error, patient) {
    if (error instanceof ApiError && error.error === "page_out_of_range" && this.state.page > 1) {
      this.state.page = 1;
      await this.refresh({ patient });
    } else if (error instanceof ApiError && error.status === 400) {
      // A regular expression that is not complete yet.
      this.problem.textContent = this.state.regex ? `${error.message}: is the regular expression right?` : error.message;
    } else if (patient) {
      this.problem.textContent = error.message;
    } else {
      throw error;
    }
  }

  query() {
    const { page, pageSize, name, regex, sort, reverse } = this.state;
    const column = this.description.columns.find((each) => each.key === sort);
    const fields = this.choice.shown.flatMap((each) => each.fields ?? [each.key]);
    return {
      page,
      page_size: pageSize,
      name,
      use_regex: regex ? "true" : null,
      sort: column?.sort ?? null,
      sort_reverse: reverse ? "true" : null,
      columns: [...new Set([...this.description.needs, ...fields])].join(","),
    };
  }

  show() {
    const { total_count: total, filtered_count: found, items } = this.data;
    const { one, caption } = this.description;
    this.count.textContent = `${found === total ? "" : `${exactNumber(found)} of `}${howMany(total, one, caption)}`;
    this.pager.show(this.data);
    if (total === 0) patch(this.body, this.description.empty());
    else if (items.length === 0) patch(this.body, h("p", { class: "empty" }, "Nothing fits the filter."));
    else patch(this.body, this.makeTable(items));
  }

  makeTable(items) {
    const columns = this.choice.shown;
    return h(
      "table",
      { key: "table" },
      h("caption", { class: "visually-hidden" }, this.description.caption),
      h("thead", null, h("tr", null, columns.map((column) => this.makeHeading(column)))),
      h("tbody", null, items.map((item) => this.makeRow(item, columns))),
    );
  }

  makeHeading(column) {
    const { sort, reverse } = this.state;
    const isSorted = sort === column.key;
    const order = isSorted ? (reverse ? "descending" : "ascending") : null;
    const toggle = () => this.sortBy(column);
    const words = [column.label, isSorted ? h("span", { class: "arrow", "aria-hidden": "true" }, reverse ? "▼" : "▲") : null];
    const content = column.sort ? h("button", { type: "button", class: "sort", on: { click: toggle } }, words) : words;
    return h("th", { scope: "col", key: column.key, class: column.numeric ? "numeric" : null, title: column.title ?? null, "aria-sort": order }, content);
  }

  /** Sort by a column, or the other way round if it is sorted by that; as it stands now, not as it was last drawn. */
  sortBy({ key, numeric }) {
    const { sort, reverse } = this.state;
    return this.change({ sort: key, reverse: sort === key ? !reverse : Boolean(numeric) });
  }

  makeRow(item, columns) {
    const cells = columns.map((column) => h("td", { key: column.key, class: column.numeric ? "numeric" : column.fixed ? "name" : null }, column.cell(item)));
    return h("tr", { key: this.description.rowKey(item) }, cells);
  }
}

function whole(items) {
  return { items, total_count: items.length, filtered_count: items.length, page: 1, page_count: 1 };
}
