/** Frame of all pages: navigation, virtual host, refresh, theme, user, and the current page. */

import { match, parse } from "./address.js";
import { Api, ApiError, ConnectionLost } from "./api.js";
import { closeDialogs } from "./dialog.js";
import { h, patch } from "./element.js";
import { clock } from "./format.js";
import { choice, emptyState, heading } from "./layout.js";
import { Notice } from "./notice.js";
import { preference, setPreference } from "./preferences.js";
import { Refresher } from "./refresh.js";
import { PAGES, TABS } from "../pages/registry.js";

/** Shell of the logged-in user. */
export class Shell {
  /**
   * @param {import("./user.js").User} user
   * @param {{ended: function(): void, left: function(): Promise}} callbacks `ended`: the session has ended;
   *   `left`: the user logs out
   */
  constructor(user, { ended, left }) {
    this.user = user;
    this.ended = ended;
    this.left = left;
    this.vhost = preference("vhost", "");
    this.vhosts = [];
    this.leaving = new AbortController();
    this.wasLost = false;
    this.title = "Leveret";
    this.refresher = new Refresher((failure) => this.report(failure));
    this.lost = new Notice("error");
    this.failed = new Notice("error");
    this.done = new Notice("done");
    this.tabs = h("div", { class: "navigation", own: true });
    this.vhostChoice = h("select", { id: "choose-vhost", own: true, on: { change: (event) => this.chooseVhost(event.target.value) } });
    this.main = h("main", { id: "main", tabindex: "-1", own: true });
    this.element = h("div", { class: "shell", own: true }, this.makeHeader(), this.tabs, this.lost.element, this.failed.element, this.main, this.done.element);
    this.route = this.route.bind(this);
  }

  makeHeader() {
    const skip = (event) => {
      event.preventDefault();
      this.main.focus();
    };
    return h(
      "header",
      { class: "top" },
      h("a", { class: "skip", href: "#/", on: { click: skip } }, "Skip to the page"),
      h("a", { class: "brand", href: "#/" }, "Leveret"),
      h("span", { class: "spring" }),
      h("span", { class: "control" }, h("label", { for: "choose-vhost", class: "choose-vhost" }, "Virtual host"), this.vhostChoice),
      folding(
        this.refresher.control(),
        themeControl(),
        h("span", { class: "control" }, h("span", { class: "user", title: this.user.tags.join(", ") }, this.user.name), h("button", { type: "button", class: "quiet", on: { click: () => this.logOut() } }, "Log out")),
      ),
    );
  }

  async logOut() {
    // Requests under way would be refused once the session has ended, and the form would say that it has ended by itself.
    this.leaving.abort();
    this.refresher.use(null);
    try {
      await this.left();
    } catch (error) {
      await this.route();
      this.failed.show(error.message);
    }
  }

  /** Show the page of the current address and follow changes of the address. */
  open() {
    addEventListener("hashchange", this.route);
    return this.route();
  }

  /** Stop refreshing and hide the shell; resume() continues. */
  pause() {
    closeDialogs();
    this.element.hidden = true;
    this.refresher.use(null);
  }

  /** Continue after pause(). */
  resume() {
    this.element.hidden = false;
    document.title = this.title;
    if (this.run === null) this.route();
    else this.refresher.use(this.run);
  }

  /** Remove the shell permanently. */
  close() {
    closeDialogs();
    removeEventListener("hashchange", this.route);
    this.leaving.abort();
    this.refresher.use(null);
    this.element.remove();
  }

  // -- pages ---------------------------------------------------------------------------------------------

  async route() {
    const { segments, query } = parse(location.hash);
    const [page, params] = find(segments);
    this.leaving.abort();
    this.leaving = new AbortController();
    this.refresher.use(null);
    this.run = null;
    this.failed.clear();
    patch(this.tabs, navigation(this.user, page?.tab ?? "", segments[0] ?? ""));
    showCurrent(this.tabs);
    const isFirst = this.root === undefined;
    this.root = h("div", { class: "page", own: true });
    this.main.replaceChildren(this.root);
    // Until the page shows what it was loaded for; assistive technology waits for it.
    this.main.setAttribute("aria-busy", "true");
    scrollTo(0, 0);
    if (!isFirst) this.main.focus({ preventScroll: true });
    this.reloadVhosts().catch(() => {});
    await this.mount(page, params, query);
  }

  async mount(page, params, query) {
    const { signal } = this.leaving;
    if (page === undefined) {
      this.setTitle("No such page");
      patch(this.root, heading("No such page"), emptyState("This address has no page.", "The tabs above lead to all pages."));
      this.main.removeAttribute("aria-busy");
      return;
    }
    let refresh = null;
    this.run = async () => {
      refresh ??= await this.prepare(page, params, query, signal);
      await refresh();
    };
    await this.refresher.use(this.run);
  }

  /** Load and mount a page and return its refresh function. A failure is retried like a failed refresh. */
  async prepare(page, params, query, signal) {
    const module = await rejectOnAbort(this.load(page, signal), signal);
    this.setTitle(module.title(params));
    const refresh = await module.mount(this.context(params, query));
    signal.throwIfAborted();
    return refresh;
  }

  /** Load the module of a page. It may be unreachable, or missing after an upgrade of the broker. */
  async load(page, signal) {
    try {
      return (await page.load()).default;
    } catch {
      signal.throwIfAborted();
      await this.makeApi().get(["session"]);
      // Browsers may cache a failed module import until the page is reloaded.
      if (this.wasLost) {
        location.reload();
        await new Promise(() => {});
      }
      throw new Error("This page could not be loaded. Please reload it in the browser.");
    }
  }

  setTitle(title) {
    this.title = `${title} – Leveret`;
    document.title = this.title;
  }

  /** Create an API client for the current page. */
  makeApi() {
    return new Api(this.leaving.signal, () => this.ended());
  }

  context(params, query) {
    const shell = this;
    const { signal } = this.leaving;
    return {
      root: this.root,
      params,
      query,
      signal,
      user: this.user,
      api: this.makeApi(),
      get vhost() {
        return shell.vhost;
      },
      get vhosts() {
        return shell.vhosts;
      },
      refresh: () => this.refresher.now(),
      navigate: (address) => location.assign(address),
      notify: (text) => this.done.show(text),
      reloadVhosts: () => this.reloadVhosts(),
    };
  }

  // -- results of refreshes ------------------------------------------------------------------------------------

  report(failure) {
    if (failure?.name === "AbortError") return;
    this.main.removeAttribute("aria-busy");
    if (failure === null) {
      this.answeredAt = Date.now();
      this.lost.clear();
      this.failed.clear();
    } else if (failure instanceof ConnectionLost) {
      this.wasLost = true;
      const since = this.answeredAt === undefined ? "" : ` The page shows data of ${clock(this.answeredAt)}.`;
      this.lost.show(`${failure.message}${since} Trying again …`);
    } else {
      this.lost.clear();
      this.reportRefusal(failure);
    }
  }

  reportRefusal(failure) {
    // The login form is shown instead.
    if (failure instanceof ApiError && failure.isLoggedOut) return;
    const isGone = failure instanceof ApiError && failure.status === 404;
    this.failed.show(isGone ? "This object does not exist or has been deleted." : failure.message);
    if (!(failure instanceof ApiError)) console.error(failure);
  }

  // -- virtual hosts ---------------------------------------------------------------------------------------

  async reloadVhosts() {
    const found = await this.makeApi().get(["vhosts"], { columns: "name" });
    this.vhosts = found.map(({ name }) => name);
    if (this.vhost !== "" && !this.vhosts.includes(this.vhost)) this.chooseVhost("");
    const options = ["", ...this.vhosts].map((name) => h("option", { key: name, value: name }, name === "" ? "All" : name));
    patch(this.vhostChoice, options);
    this.vhostChoice.value = this.vhost;
  }

  chooseVhost(name) {
    this.vhost = name;
    setPreference("vhost", name);
    this.refresher.now();
  }
}

/** Return controls that are behind a button on narrow screens. */
function folding(...controls) {
  const open = (isOpen) => {
    content.classList.toggle("open", isOpen);
    button.setAttribute("aria-expanded", String(isOpen));
  };
  const content = h("div", { class: "top-content", id: "top-content" }, controls);
  const button = h("button", { type: "button", class: "quiet top-button", "aria-expanded": "false", "aria-controls": "top-content", on: { click: () => open(!content.classList.contains("open")) } }, "Menu");
  const menu = h("div", { class: "top-menu" }, button, content);
  menu.addEventListener("focusout", (event) => event.relatedTarget !== null && !menu.contains(event.relatedTarget) && open(false));
  menu.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || !content.classList.contains("open")) return;
    open(false);
    button.focus();
  });
  return menu;
}

/** Return the result of a promise, or reject as soon as the signal is aborted. Module imports cannot be aborted. */
function rejectOnAbort(promise, signal) {
  const left = new Promise((_, reject) => {
    signal.addEventListener("abort", () => reject(signal.reason), { once: true });
  });
  return Promise.race([promise, left]);
}

function find(segments) {
  for (const page of PAGES) {
    const params = match(page.path, segments);
    if (params !== null) return [page, params];
  }
  return [undefined, {}];
}

const THEMES = ["auto", "light", "dark"];

/** Apply the user's theme. Must be called before anything is shown. */
export function applyTheme() {
  const theme = preference("theme", "auto");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
}

/** @returns {HTMLElement} select for the theme */
function themeControl() {
  const choose = (theme) => {
    setPreference("theme", theme);
    applyTheme();
  };
  const options = THEMES.map((theme) => [theme, theme]);
  return choice("choose-theme", "Theme", options, preference("theme", "auto"), choose);
}

/**
 * Make the navigation tabs.
 *
 * @param {import("./user.js").User} user
 * @param {string} current name of the current page's tab
 * @param {string} path first segment of the page's address
 * @returns {HTMLElement[]} one row of links, and a second one below some tabs
 */
function navigation(user, current, path) {
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
function showCurrent(place) {
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
