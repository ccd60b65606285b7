/**
 * Registry of the pages by address.
 *
 * A page is a module in this folder and a row in PAGES. It is loaded when its address is opened for the first time.
 * Its default export is:
 *
 *     export default {
 *       // Title of the browser tab. params: the parts of the address that start with a colon.
 *       title: (params) => `Queue ${params.name}`,
 *
 *       // Called once each time the address is opened. Returns the function that updates the page, which is called
 *       // immediately, on every refresh, and when another virtual host is chosen. An error that it throws is shown
 *       // above the page until the next success: 404 is shown as a deleted object, and a lost connection in a
 *       // banner, with automatic retries.
 *       mount(context) {
 *         const charts = new Chart({ title: "Messages" });      // stateful parts are created once
 *         return async () => {
 *           const queue = await context.api.get(["queues", params.vhost, params.name]);
 *           charts.update([...]);
 *           patch(context.root, heading(`Queue ${queue.name}`), charts.element, properties([...]));
 *         };
 *       },
 *     };
 *
 * Properties of context:
 *   root        element to patch(); empty at first
 *   params      parameters of the address, decoded; query: URLSearchParams of the part after "?"
 *   user        the logged-in user: user.name, user.may("administrator")
 *   vhost       name of the chosen virtual host, "" for all; may change, so read it on every refresh
 *   vhosts      names of the virtual hosts that the user sees
 *   api         API client; its requests are aborted when the page is left; see parts/api.js
 *   signal      AbortSignal, aborted when the page is left
 *   refresh()   updates the page now, for example after an action
 *   navigate(address)   opens another page; see parts/address.js for addresses
 *   notify(text)        shows a confirmation for a few seconds
 *   reloadVhosts()      must be called after virtual hosts were added or deleted
 */

/** Returns what takes the page of a name from a module that has several. */
const page = (name) => (module) => ({ default: module[name] });

/** Rows: path with parameters after colons, tab, and module. */
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
  { path: "jobs", tab: "Jobs", load: () => import("./jobs.js") },
  { path: "jobs/:vhost/:name", tab: "Jobs", load: () => import("./jobs.js").then(page("job")) },
  { path: "sql", tab: "SQL", load: () => import("./sql.js") },
  { path: "shovels", tab: "Admin", load: () => import("./shovels.js") },
  { path: "audit", tab: "Admin", load: () => import("./audit.js") },
  { path: "backups", tab: "Admin", load: () => import("./backups.js") },
  { path: "replication", tab: "Admin", load: () => import("./replication.js") },
  { path: "users", tab: "Admin", load: () => import("./users.js") },
  { path: "users/:name", tab: "Admin", load: () => import("./user.js") },
  { path: "vhosts", tab: "Admin", load: () => import("./vhosts.js") },
  { path: "vhosts/:name", tab: "Admin", load: () => import("./vhost.js") },
  { path: "limits", tab: "Admin", load: () => import("./limits.js") },
  { path: "operator-policies", tab: "Admin", load: () => import("./policies.js").then(page("operator")) },
  { path: "operator-policies/:vhost/:name", tab: "Admin", load: () => import("./policy.js").then(page("operator")) },
];

/** Tabs in order; `tag`: tag that is required to see the tab. Tabs without a page in PAGES are hidden. */
export const TABS = [
  { name: "Overview", path: "", tag: "management" },
  { name: "Connections", path: "connections", tag: "management" },
  { name: "Channels", path: "channels", tag: "management" },
  { name: "Exchanges", path: "exchanges", tag: "management" },
  { name: "Queues", path: "queues", tag: "management" },
  { name: "Policies", path: "policies", tag: "management" },
  { name: "Losses", path: "losses", tag: "management" },
  { name: "Jobs", path: "jobs", tag: "management" },
  { name: "SQL", path: "sql", tag: "management" },
  {
    name: "Admin",
    tag: "management",
    below: [
      { name: "Users", path: "users", tag: "administrator" },
      { name: "Virtual hosts", path: "vhosts", tag: "administrator" },
      { name: "Limits", path: "limits", tag: "management" },
      { name: "Operator policies", path: "operator-policies", tag: "management" },
      { name: "Shovels", path: "shovels", tag: "monitoring" },
      { name: "Audit log", path: "audit", tag: "monitoring" },
      { name: "Backups", path: "backups", tag: "monitoring" },
      { name: "Replication", path: "replication", tag: "monitoring" },
    ],
  },
];
