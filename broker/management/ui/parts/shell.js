/** What is around every page: navigation, the choice of the virtual host, refresh, theme, user; and the page itself. */

import { PAGES } from "../pages/registry.js";
import { match, parse } from "./address.js";
import { Api, ApiError, ConnectionLost } from "./api.js";
import { h, patch } from "./element.js";
import { clock } from "./format.js";
import { emptyState, heading } from "./layout.js";
import { navigation } from "./navigation.js";
import { Notice } from "./notice.js";
import { prefer, preference } from "./preferences.js";
import { Refresher } from "./refresh.js";
import { themeControl } from "./theme.js";

/** The shell of one logged in user. */
export class Shell {
  /**
   * @param {import("./user.js").User} user
   * @param {{ended: function(): void, left: function(): Promise}} callbacks `ended`: the API no longer knows who we
   *   are; `left`: the user wants to log out
   */
  constructor(user, { ended, left }) {
    this.user = user;
    this.ended = ended;
    this.left = left;
    this.vhost = preference("vhost", "");
    this.vhosts = [];
    this.leaving = new AbortController();
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
      h("span", { class: "control" }, h("label", { for: "choose-vhost" }, "Virtual host"), this.vhostChoice),
      this.refresher.control(),
      themeControl(),
      h("span", { class: "control" }, h("span", { class: "user", title: this.user.tags.join(", ") }, this.user.name), h("button", { type: "button", class: "quiet", on: { click: () => this.logOut() } }, "Log out")),
    );
  }

  async logOut() {
    try {
      await this.left();
    } catch (error) {
      this.failed.show(error.message);
    }
  }

  /** Show the page of the address, and follow it from now on. */
  open() {
    addEventListener("hashchange", this.route);
    return this.route();
  }

  /** Stop asking, and hide; resume() goes on where we were. */
  pause() {
    this.element.hidden = true;
    this.refresher.use(null);
  }

  /** Go on after pause(). */
  resume() {
    this.element.hidden = false;
    document.title = this.title;
    this.refresher.use(this.run);
  }

  /** End for good. */
  close() {
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
    this.failed.clear();
    patch(this.tabs, navigation(this.user, page?.tab ?? "", segments[0] ?? ""));
    const isFirst = this.root === undefined;
    this.root = h("div", { class: "page", own: true });
    this.main.replaceChildren(this.root);
    scrollTo(0, 0);
    if (!isFirst) this.main.focus({ preventScroll: true });
    this.reloadVhosts().catch(() => {});
    await this.mount(page, params, query);
  }

  async mount(page, params, query) {
    const { signal } = this.leaving;
    if (page === undefined) {
      this.setTitle("No such page");
      patch(this.root, heading("No such page"), emptyState("There is nothing at this address.", "The tabs above lead to all there is."));
      return;
    }
    try {
      const { default: module } = await page.load();
      if (signal.aborted) return;
      this.setTitle(module.title(params));
      const refresh = await module.mount(this.context(params, query));
      if (signal.aborted) return;
      this.run = async () => refresh();
      await this.refresher.use(this.run);
    } catch (error) {
      if (!signal.aborted) this.report(error);
    }
  }

  setTitle(title) {
    this.title = `${title} – Leveret`;
    document.title = this.title;
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
      api: new Api(signal),
      get vhost() {
        return shell.vhost;
      },
      get vhosts() {
        return shell.vhosts;
      },
      refresh: () => this.refresher.now(),
      navigate: (address) => location.assign(address),
      say: (text) => this.done.show(text),
      reloadVhosts: () => this.reloadVhosts(),
    };
  }

  // -- what may happen ------------------------------------------------------------------------------------

  report(failure) {
    if (failure === null) {
      this.answeredAt = Date.now();
      this.lost.clear();
      this.failed.clear();
    } else if (failure.name === "AbortError") {
      return;
    } else if (failure instanceof ConnectionLost) {
      const since = this.answeredAt === undefined ? "" : ` What is shown is of ${clock(this.answeredAt)}.`;
      this.lost.show(`${failure.message}${since} Trying again …`);
    } else {
      this.lost.clear();
      this.reportRefusal(failure);
    }
  }

  reportRefusal(failure) {
    if (failure instanceof ApiError && failure.isLoggedOut) {
      this.ended();
      return;
    }
    const isGone = failure instanceof ApiError && failure.status === 404;
    this.failed.show(isGone ? "There is no such object (any more)." : failure.message);
    if (!(failure instanceof ApiError)) console.error(failure);
  }

  // -- virtual hosts ---------------------------------------------------------------------------------------

  async reloadVhosts() {
    const found = await new Api(this.leaving.signal).get(["vhosts"], { columns: "name" });
    this.vhosts = found.map(({ name }) => name);
    if (this.vhost !== "" && !this.vhosts.includes(this.vhost)) this.chooseVhost("");
    const options = ["", ...this.vhosts].map((name) => h("option", { key: name, value: name }, name === "" ? "All" : name));
    patch(this.vhostChoice, options);
    this.vhostChoice.value = this.vhost;
  }

  chooseVhost(name) {
    this.vhost = name;
    prefer("vhost", name);
    this.refresher.now();
  }
}

function find(segments) {
  for (const page of PAGES) {
    const params = match(page.path, segments);
    if (params !== null) return [page, params];
  }
  return [undefined, {}];
}
