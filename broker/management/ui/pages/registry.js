/**
 * All pages, by address.
 *
 * A page is a module in this folder and a row in PAGES. It is fetched when its address is opened for the first time.
 * Its default export is:
 *
 *     export default {
 *       // For the browser's tab. params: the parts of the address that start with a colon.
 *       title: (params) => `Queue ${params.name}`,
 *
 *       // Called once each time the address is opened; returns what brings the page up to date, which is called at
 *       // once, at every refresh, and when another virtual host is chosen. Whatever that throws is shown above the
 *       // page in the API's words and is gone after the next success; 404 says that the object is gone; a lost
 *       // connection is shown in a banner and tried again.
 *       mount(context) {
 *         const charts = new Chart({ title: "Messages" });      // parts with a state of their own are made once
 *         return async () => {
 *           const queue = await context.api.get(["queues", params.vhost, params.name]);
 *           charts.update([...]);
 *           patch(context.root, heading(`Queue ${queue.name}`), charts.element, properties([...]));
 *         };
 *       },
 *     };
 *
 * context has
 *   root        element to patch(); empty at first
 *   params      of the address, decoded; query: URLSearchParams of what follows its "?"
 *   user        who is logged in: user.name, user.may("administrator")
 *   vhost       name of the chosen virtual host, "" for all; of the moment, so read it at every refresh
 *   vhosts      names of those that the user sees
 *   api         requests, which end when the page is left; see parts/api.js
 *   signal      AbortSignal, aborted when the page is left
 *   refresh()   brings the page up to date at once, for example after an action
 *   navigate(address)   opens another page; addresses are made with parts/address.js
 *   say(text)   shows for a moment that something is done
 *   reloadVhosts()      after virtual hosts were made or deleted
 */

/** Rows: path with parameters after colons, the tab it belongs to, the module. */
export const PAGES = [
  { path: "", tab: "Overview", load: () => import("./overview.js") },
  { path: "connections", tab: "Connections", load: () => import("./connections.js") },
  { path: "connections/:name", tab: "Connections", load: () => import("./connection.js") },
  { path: "channels", tab: "Channels", load: () => import("./channels.js") },
  { path: "channels/:name", tab: "Channels", load: () => import("./channel.js") },
  { path: "exchanges", tab: "Exchanges", load: () => import("./exchanges.js") },
  { path: "exchanges/:vhost/:name", tab: "Exchanges", load: () => import("./exchange.js") },
  { path: "queues", tab: "Queues", load: () => import("./queues.js") },
  { path: "queues/:vhost/:name", tab: "Queues", load: () => import("./queue.js") },
  { path: "policies", tab: "Policies", load: () => import("./policies.js") },
  { path: "policies/:vhost/:name", tab: "Policies", load: () => import("./policy.js") },
  { path: "losses", tab: "Losses", load: () => import("./losses.js") },
  { path: "users", tab: "Admin", load: () => import("./users.js") },
  { path: "users/:name", tab: "Admin", load: () => import("./user.js") },
  { path: "vhosts", tab: "Admin", load: () => import("./vhosts.js") },
  { path: "vhosts/:name", tab: "Admin", load: () => import("./vhost.js") },
  { path: "limits", tab: "Admin", load: () => import("./limits.js") },
  { path: "operator-policies", tab: "Admin", load: () => import("./operator_policies.js") },
  { path: "operator-policies/:vhost/:name", tab: "Admin", load: () => import("./operator_policy.js") },
];

/** Tabs in their order; `tag`: who sees them. Those whose page is not in PAGES are not shown. */
export const TABS = [
  { name: "Overview", path: "", tag: "management" },
  { name: "Connections", path: "connections", tag: "management" },
  { name: "Channels", path: "channels", tag: "management" },
  { name: "Exchanges", path: "exchanges", tag: "management" },
  { name: "Queues", path: "queues", tag: "management" },
  { name: "Policies", path: "policies", tag: "management" },
  { name: "Losses", path: "losses", tag: "management" },
  {
    name: "Admin",
    tag: "management",
    below: [
      { name: "Users", path: "users", tag: "administrator" },
      { name: "Virtual hosts", path: "vhosts", tag: "administrator" },
      { name: "Limits", path: "limits", tag: "management" },
      { name: "Operator policies", path: "operator-policies", tag: "management" },
    ],
  },
];
