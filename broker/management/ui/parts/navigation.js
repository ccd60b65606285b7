/** Navigation tabs: links to the pages that the user's tags allow. */

import { h } from "./element.js";
import { PAGES, TABS } from "../pages/registry.js";

/**
 * Make the navigation tabs.
 *
 * @param {import("./user.js").User} user
 * @param {string} current name of the current page's tab
 * @param {string} path first segment of the page's address
 * @returns {HTMLElement[]} one row of links, and a second one below some tabs
 */
export function navigation(user, current, path) {
  const tabs = offered(TABS, user);
  const below = offered(tabs.find(({ name }) => name === current)?.below ?? [], user);
  const rows = [h("nav", { class: "tabs", "aria-label": "Main" }, links(tabs, (tab) => tab.name === current))];
  if (below.length > 0) {
    rows.push(h("nav", { class: "tabs below", "aria-label": current }, links(below, (tab) => tab.path === path)));
  }
  return rows;
}

/**
 * Scroll the current links into view on narrow screens. scrollIntoView() would also move the starting point of the focus.
 *
 * @param {HTMLElement} place element with rows of links
 */
export function showCurrent(place) {
  for (const link of place.querySelectorAll("[aria-current]")) {
    const list = link.closest("ul");
    const [inner, outer] = [link.getBoundingClientRect(), list.getBoundingClientRect()];
    list.scrollLeft += inner.left + inner.width / 2 - (outer.left + outer.width / 2);
  }
}

function offered(tabs, user) {
  const found = tabs.map((tab) => (tab.below === undefined ? tab : { ...tab, path: offered(tab.below, user)[0]?.path }));
  return found.filter(({ path, tag }) => user.may(tag) && PAGES.some((page) => page.path === path));
}

function links(tabs, isCurrent) {
  return h("ul", null, tabs.map((tab) => h("li", { key: tab.name }, h("a", { href: `#/${tab.path}`, "aria-current": isCurrent(tab) ? "page" : null }, tab.name))));
}
