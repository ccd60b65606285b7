/**
 * Tables of API objects with filter, sort order and pages. Rows are updated in place.
 */

import { ApiError } from "./api.js";
import { h, patch } from "./element.js";
import { countedNoun, exactNumber } from "./format.js";
import { preference, setPreference } from "./preferences.js";

const SIZES = [20, 50, 100, 500];

/** Buttons for the pages and a select for the page size; hidden if all rows fit on the smallest page. */
export class Pager {
  /**
   * @param {{page: number, pageSize: number}} state current page and size; modified by this class
   * @param {function(): void} changed called after a change of the page or size
   */
  constructor(state, changed) {
    this.state = state;
    this.changed = changed;
    this.pages = 1;
    this.previous = this.button("‹ Previous", -1);
    this.next = this.button("Next ›", 1);
    this.place = h("span", { role: "status" });
    const options = SIZES.map((size) => h("option", { value: size, selected: size === state.pageSize }, String(size)));
    const choose = (event) => this.go(1, Number(event.target.value));
    const size = h("label", null, h("select", { on: { change: choose } }, options), " a page");
    this.element = h("nav", { class: "pager", "aria-label": "Pages", own: true }, this.previous, this.place, this.next, size);
    this.element.hidden = true;
  }

  button(label, step) {
    return h("button", { type: "button", on: { click: () => this.go(this.state.page + step, this.state.pageSize) } }, label);
  }

  go(page, pageSize) {
    Object.assign(this.state, { page, pageSize });
    this.changed();
  }

  /** Show the position in the list. @param {Object} answer page from the API */
  show({ page, page_count: pages, filtered_count: found }) {
    this.element.hidden = !(found > SIZES[0]);
    this.place.textContent = `Page ${page} of ${Math.max(1, pages)}`;
    this.previous.disabled = page <= 1;
    this.next.disabled = page >= pages;
  }
}

const FILTER_DELAY_MS = 250;
/** State of each table, so that returning to a page restores it. */
const savedStates = new Map();

/**
 * A column.
 *
 * @typedef {Object} Column
 * @property {string} key unique key of the column
 * @property {string} label heading
 * @property {function(Object): *} cell returns text, number or node for an object
 * @property {string} [sort] sort key of the API, for example `message_stats.publish_details.rate`
 * @property {string[]} [fields] dotted paths of the fields that the cell needs; default: `key`
 * @property {boolean} [numeric] aligned right and sorted in descending order first
 * @property {boolean} [hidden] hidden unless selected
 * @property {function(): boolean} [isRedundant] whether all rows currently have the same value, which hides the column
 * @property {boolean} [fixed] cannot be hidden; for the name column
 * @property {string} [title] explanation on hover
 */

/** Table that loads its rows. */
export class Table {
  /**
   * @param {Object} description
   * @param {string} description.id key of the stored columns, and plural of the rows: "queues"
   * @param {Column[]} description.columns
   * @param {function(Object): string} description.rowKey returns a unique key of an object
   * @param {function(Object): Promise<Object>} description.load requests a page from the API; takes the query (page,
   *   page_size, name, use_regex, sort, sort_reverse, columns); returns a page or an array
   * @param {function(): Node} description.empty returns the content for an empty list; see emptyState()
   * @param {string} [description.caption] plural of the rows, for screen readers and the count; default: id
   * @param {string} [description.one] singular of the caption; default: the caption without its s
   * @param {string} [description.place] key of the stored filter, order and page, if several objects have such a table;
   *   default: id
   * @param {string} [description.sort] key of the initial sort column
   * @param {boolean} [description.reverse] whether the initial order is descending
   * @param {Object} [description.state] replaces parts of the stored filter, order and page, as an address asks for
   * @param {string[]} [description.needs] fields that rows need besides those of the columns
   * @param {string} [description.filterLabel] label of the filter; default "Filter by name"
   * @param {boolean} [description.filtered] whether the table has a filter; default true
   */
  constructor(description) {
    const caption = description.caption ?? description.id;
    this.description = { caption, one: caption.replace(/s$/, ""), needs: [], filterLabel: "Filter by name", filtered: true, ...description };
    const { id, sort = "", reverse = false, place = id } = this.description;
    this.state = savedStates.get(place) ?? { page: 1, pageSize: 100, name: "", regex: false, sort, reverse };
    savedStates.set(place, Object.assign(this.state, this.description.state));
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
      this.typing = setTimeout(() => this.change({ name: filter.value }), FILTER_DELAY_MS);
    });
    regex.addEventListener("change", () => this.change({ regex: regex.checked }));
    const filters = this.description.filtered ? [filter, h("label", { title: "Case-insensitive" }, regex, " regex")] : null;
    return h("div", { class: "table-bar" }, filters, this.count, this.problem, h("span", { class: "spring" }), this.choice.element);
  }

  /** Change the filter or the order and show the first page. @param {Object} changes changes of the state */
  change(changes) {
    Object.assign(this.state, { page: 1, ...changes });
    return this.refresh({ patient: true });
  }

  /** Show another page and scroll to its top, because the pager is below the table. */
  async turn() {
    await this.refresh({ patient: true });
    scrollBy(0, Math.min(0, this.element.getBoundingClientRect().top));
  }

  /**
   * Reload the rows.
   *
   * @param {{patient?: boolean}} [how] `patient`: a failure is shown at the table instead of thrown
   */
  async refresh({ patient = false } = {}) {
    this.requests = (this.requests ?? 0) + 1;
    const request = this.requests;
    try {
      const answer = await this.description.load(this.query());
      if (request !== this.requests) return;
      this.data = Array.isArray(answer) ? toPage(answer) : answer;
      this.problem.textContent = "";
      this.show();
    } catch (error) {
      if (request !== this.requests || error.name === "AbortError") return;
      await this.recover(error, patient);
    }
  }

  async recover(error, patient) {
    if (error instanceof ApiError && error.error === "page_out_of_range" && this.state.page > 1) {
      this.state.page = 1;
      await this.refresh({ patient });
    } else if (error instanceof ApiError && error.status === 400) {
      // The regular expression may be incomplete while it is typed.
      this.problem.textContent = this.state.regex ? `${error.message}: check the regular expression` : error.message;
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
    this.count.textContent = `${found === total ? "" : `${exactNumber(found)} of `}${countedNoun(total, one, caption)}`;
    this.pager.show(this.data);
    if (total === 0) patch(this.body, this.description.empty());
    else if (items.length === 0) patch(this.body, h("p", { class: "empty" }, "No rows match the filter."));
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
    return h("th", { scope: "col", key: column.key, class: cellClass(column), title: column.title ?? null, "aria-sort": order }, content);
  }

  /** Sort by a column; reverse the order if the table is already sorted by it. */
  sortBy({ key, numeric }) {
    const { sort, reverse } = this.state;
    return this.change({ sort: key, reverse: sort === key ? !reverse : Boolean(numeric) });
  }

  makeRow(item, columns) {
    // On narrow screens the virtual host is shown below the name.
    const vhost = columns.some(({ key }) => key === "vhost") ? item.vhost : null;
    const cells = columns.map((column) => h("td", { key: column.key, class: cellClass(column), "data-vhost": isName(column) ? vhost : null }, column.cell(item)));
    return h("tr", { key: this.description.rowKey(item) }, cells);
  }
}

/** Return whether a column has the names of the rows, and not a button that cannot be hidden either. */
function isName({ fixed, sort }) {
  return Boolean(fixed && sort);
}

function cellClass(column) {
  if (column.key === "vhost") return "wide-only";
  return column.numeric ? "numeric" : isName(column) ? "name" : null;
}

function toPage(items) {
  return { items, total_count: items.length, filtered_count: items.length, page: 1, page_count: 1 };
}

/** Button that opens a list of check boxes, one per column. */
class ColumnChoice {
  /**
   * @param {string} id of the table
   * @param {import("./table.js").Column[]} columns all columns of the table
   * @param {function(): void} changed called after a change of the selection
   */
  constructor(id, columns, changed) {
    this.columns = columns;
    this.name = `columns.${id}`;
    // Selection by column key. Columns without an entry use their own default.
    this.chosen = preference(this.name, {}) ?? {};
    this.changed = changed;
    this.element = h("details", { class: "menu", own: true }, h("summary", null, "Columns"), h("div", { class: "menu-content" }, this.boxes(), this.resetButton()));
    this.element.addEventListener("keydown", (event) => this.closeOnEscape(event));
    this.element.addEventListener("focusout", (event) => {
      if (event.relatedTarget !== null && !this.element.contains(event.relatedTarget)) this.element.open = false;
    });
  }

  /** @returns {import("./table.js").Column[]} the visible columns in order */
  get shown() {
    return this.columns.filter((column) => this.isShown(column) && !column.isRedundant?.());
  }

  isShown(column) {
    return column.fixed || (this.chosen[column.key] ?? !column.hidden);
  }

  boxes() {
    this.inputs = this.columns
      .filter((column) => !column.fixed)
      .map((column) => ({ column, input: h("input", { type: "checkbox", checked: this.isShown(column), on: { change: (event) => this.choose(column, event.target.checked) } }) }));
    return this.inputs.map(({ column, input }) => h("label", { title: column.title ?? null }, input, ` ${column.label}`));
  }

  resetButton() {
    const reset = () => {
      this.chosen = {};
      for (const { column, input } of this.inputs) input.checked = this.isShown(column);
      this.save();
    };
    return h("button", { type: "button", class: "quiet", on: { click: reset } }, "Restore the default");
  }

  choose(column, isShown) {
    this.chosen[column.key] = isShown;
    this.save();
  }

  save() {
    setPreference(this.name, this.chosen);
    this.changed();
  }

  closeOnEscape(event) {
    if (event.key !== "Escape" || !this.element.open) return;
    this.element.open = false;
    this.element.querySelector("summary").focus();
  }
}
