/** Overview page of the broker. */

import { address } from "../parts/address.js";
import { apiPath } from "../parts/api.js";
import { fillBar } from "../parts/badge.js";
import { Chart } from "../parts/chart.js";
import { listColumns } from "../parts/columns.js";
import { confirmAction } from "../parts/dialog.js";
import { h, patch } from "../parts/element.js";
import { Form } from "../parts/form.js";
import { bytes, exactNumber, number, rate, shortBytes, shortRate, span } from "../parts/format.js";
import { folded, heading, objectTable, plainTable, properties, section, tiles } from "../parts/layout.js";
import { levels, RangeChoice, rates } from "../parts/series.js";
import { loadProblems, problemsSection } from "./overview_problems.js";

const LENGTHS = [
  ["messages_ready", "Ready", "waiting in queues"],
  ["messages_unacknowledged", "Unacked", "delivered, and not acknowledged yet"],
];
const RATES = [
  ["publish", "Publish", "published by clients"],
  ["confirm", "Confirm", "confirmed to publishers"],
  ["deliver_get", "Deliver", "delivered to consumers, or fetched"],
  ["ack", "Ack", "acknowledged by consumers"],
  ["redeliver", "Redeliver", "delivered once more"],
  ["return_unroutable", "Return", "returned: no queue was found for a mandatory message"],
  ["drop", "Drop", "removed from full queues without a consumer having seen them"],
  ["refuse", "Refuse", "refused because a queue was full"],
];
const CHURN = [
  ["connection_created", "Connections opened"],
  ["connection_closed", "Connections closed"],
  ["channel_created", "Channels opened"],
  ["channel_closed", "Channels closed"],
  ["queue_declared", "Queues declared"],
  ["queue_created", "Queues created"],
  ["queue_deleted", "Queues deleted"],
];

export default {
  title: () => "Overview",

  mount(context) {
    const { user, api, root } = context;
    const range = new RangeChoice(() => context.refresh());
    const charts = {
      lengths: new Chart({ title: "Queued messages", stacked: true }),
      rates: new Chart({ title: "Message rates", format: shortRate, empty: "No message has been published or delivered yet." }),
      churn: new Chart({ title: "Events a second", format: shortRate }),
    };
    const node = user.may("monitoring") ? new NodeSection() : null;
    const definitions = user.may("administrator") ? definitionsSection(context) : null;

    return async () => {
      const [overview, problems, nodes, readers] = await Promise.all([
        api.get(["overview"], range.query),
        loadProblems(api, node !== null),
        node ? api.get(["nodes"], range.query) : [],
        node ? api.get(["readers"]) : [],
      ]);
      draw(charts, overview);
      node?.update(nodes.find(({ name }) => name === overview.node));
      patch(
        root,
        heading(["Overview ", h("small", null, `${overview.cluster_name} · ${overview.product_name} ${overview.product_version}`)], range.element),
        node ? node.alarms : null,
        problemsSection(problems, !overview.disable_stats),
        totals(overview),
        h("div", { class: "charts" }, charts.lengths.element, charts.rates.element),
        node ? section("Node", node.element) : null,
        readersSection(context, readers),
        section("Churn", h("div", { class: "charts" }, charts.churn.element, churnTable(overview.churn_rates))),
        section("About", about(overview)),
        overview.listeners ? section("Listeners", listeners(overview.listeners)) : null,
        definitions,
      );
    };
  },
};

function draw(charts, { queue_totals: lengths = {}, message_stats: stats = {}, churn_rates: churn = {} }) {
  charts.lengths.update(LENGTHS.map(([name, label, title]) => ({ label, title, points: levels(lengths[`${name}_details`]) })));
  charts.rates.update(RATES.map(([name, label, title], index) => ({ label, title, colour: index + 1, points: rates(stats[`${name}_details`]) })));
  charts.churn.update(CHURN.map(([name, label], index) => ({ label, colour: index + 1, points: rates(churn[`${name}_details`]) })));
}

function totals({ object_totals: objects, queue_totals: lengths = {}, message_stats: stats = {} }) {
  return tiles([
    ["Connections", number(objects.connections), address("connections")],
    ["Channels", number(objects.channels), address("channels")],
    ["Exchanges", number(objects.exchanges), address("exchanges")],
    ["Queues", number(objects.queues), address("queues")],
    ...(objects.consumers === undefined ? [] : [["Consumers", number(objects.consumers)]]),
    ["Ready", number(lengths.messages_ready ?? 0)],
    ["Unacked", number(lengths.messages_unacknowledged ?? 0)],
    ["Published", rate(stats.publish_details?.rate ?? 0)],
    ["Delivered", rate(stats.deliver_get_details?.rate ?? 0)],
  ]);
}

function churnTable(churn = {}) {
  return plainTable(
    "Churn",
    ["Event", { label: "Since the broker's start", numeric: true }, { label: "Rate", numeric: true }],
    CHURN.map(([name, label]) => ({ key: name, cells: [label, number(churn[name] ?? 0), rate(churn[`${name}_details`]?.rate ?? 0)] })),
  );
}

function about(overview) {
  return properties([
    ["Uptime", overview.listeners ? null : span(overview.uptime / 1000)],
    ["Version", `${overview.product_name} ${overview.product_version}`],
    ["API as of RabbitMQ", overview.rabbitmq_version],
    ["Runs on", overview.erlang_full_version],
    ["Exchange types", overview.exchange_types.map(({ name }) => name).join(", ")],
  ]);
}

function listeners(rows) {
  return plainTable(
    "Listeners",
    ["Protocol", "Bound to", { label: "Port", numeric: true }],
    rows.map(({ protocol, ip_address: ip, port }) => ({ key: `${protocol} ${ip} ${port}`, cells: [protocol, ip, String(port)] })),
  );
}

const ALARMS = [
  ["mem_alarm", "Memory alarm: memory use exceeds the high watermark, so publishers are blocked."],
  ["disk_free_alarm", "Disk alarm: free space is below the limit, so publishers are blocked."],
];

/** Usage bars, properties and a memory chart; `element` and `alarms` are created once. */
export class NodeSection {
  constructor() {
    this.memory = new Chart({ title: "Memory", format: shortBytes, base: 1024 });
    this.facts = h("div", { own: true });
    this.alarms = h("div", { own: true, role: "alert" });
    this.element = h("div", { class: "charts", own: true }, this.memory.element, this.facts);
  }

  /** Show the state of the node. @param {Object} node node object of the API */
  update(node) {
    const points = levels(node.mem_used_details);
    const limit = points.map(({ at }) => ({ at, value: node.mem_limit }));
    this.memory.update([
      { label: "Used", points },
      { label: "Watermark", points: limit, limit: true, colour: 8 },
    ]);
    patch(this.alarms, ALARMS.filter(([name]) => node[name]).map(([name, text]) => h("p", { class: "notice error", key: name }, text)));
    patch(this.facts, nodeProperties(node));
  }
}

function nodeProperties(node) {
  const free = [bytes(node.disk_free), ` free; alarm below ${shortBytes(node.disk_free_limit)}`];
  return properties([
    ["Name", node.name],
    ["Memory", fillBar(node.mem_used, node.mem_limit, shortBytes, { label: "Memory", note: "of the watermark" })],
    ["Disk", node.disk_free_alarm ? h("strong", { class: "bad" }, free) : free],
    ["File descriptors", fillBar(node.fd_used, node.fd_total, exactNumber, { label: "File descriptors" })],
    ["Sockets", fillBar(node.sockets_used, node.sockets_total, exactNumber, { label: "Sockets" })],
    ["Alarms", ALARMS.some(([name]) => node[name]) ? h("strong", { class: "bad" }, "set, see above") : "none"],
    ["Uptime", span(node.uptime / 1000)],
    ["Processors", number(node.processors)],
    ["Process", node.os_pid],
    ["Data", h("code", null, node.db_dir)],
    ["Configuration", node.config_files.length > 0 ? node.config_files.map((file) => h("code", { key: file }, file)) : "defaults"],
  ]);
}

/**
 * Return the section of the readers.
 *
 * @param {Object} context context of the page
 * @param {Object[]} readers the readers, from the API
 * @returns {HTMLElement|null} section; null if there are none
 */
function readersSection(context, readers) {
  if (readers.length === 0) return null;
  const all = h("span", { class: "muted" }, "all");
  const action = { label: "Action", cell: ({ name }) => (context.user.may("administrator") ? dropButton(context, name) : null) };
  const columns = [...listColumns("readers", { vhost: ({ vhost }) => vhost ?? all, queue: ({ queue }) => queue ?? all }), action];
  return section("Readers", objectTable("readers", columns, readers));
}

function dropButton(context, name) {
  return h("button", { type: "button", class: "quiet", on: { click: () => dropReader(context, name) } }, "Drop …");
}

async function dropReader(context, name) {
  const isDone = await confirmAction({
    title: "Drop a reader",
    name,
    text: "Nothing is kept for it any more. Its query fails, or counts what it misses.",
    verb: "Drop",
    action: () => context.api.delete(["readers", name]),
  });
  if (!isDone) return;
  context.notify(`Reader ${name} has been dropped.`);
  await context.refresh();
}

/**
 * Make the section that exports and imports definitions.
 *
 * @param {Object} context context of the page
 * @returns {HTMLElement} section, to be created once
 */
function definitionsSection(context) {
  const form = new Form({
    fields: [{ name: "file", label: "Definitions file", kind: "file", accept: ".json,application/json", required: true, hint: "Objects in the file are added or replaced; nothing is deleted." }],
    submit: "Import …",
    action: ({ file }) => importFile(context, file),
  });
  const download = h("a", { class: "button", href: exportPath(context), download: "", on: { click: (event) => updateLink(event.currentTarget, context) } }, "Export definitions");
  const made = folded("Definitions", h("p", null, "Virtual hosts, users, permissions, exchanges, queues, bindings and policies, of the chosen virtual host or of all virtual hosts. Users are exported with their password hashes."), h("p", null, download), form.element);
  return made;
}

function exportPath({ vhost }) {
  return apiPath(vhost === "" ? ["definitions"] : ["definitions", vhost]);
}

/** Set the link's address to the currently chosen virtual host. */
function updateLink(link, context) {
  const day = new Date().toISOString().slice(0, 10);
  link.setAttribute("href", exportPath(context));
  link.setAttribute("download", `leveret-definitions-${day}.json`);
}

async function importFile(context, file) {
  const json = await readJson(file);
  const { vhost } = context;
  const isDone = await confirmAction({
    title: "Import definitions",
    name: file.name,
    text: vhost === "" ? "They take effect immediately, in all virtual hosts." : `They take effect immediately, in virtual host ${vhost}.`,
    verb: "Import",
    action: () => context.api.request("POST", vhost === "" ? ["definitions"] : ["definitions", vhost], { json }),
  });
  if (!isDone) return "";
  await Promise.all([context.reloadVhosts(), context.refresh()]);
  return `${file.name} has been imported.`;
}

/** Return the file unchanged: JavaScript would round large numbers when it encodes them again. */
async function readJson(file) {
  const text = await file.text();
  try {
    JSON.parse(text);
  } catch (error) {
    throw new Error(`${file.name} is not JSON: ${error.message}`);
  }
  return text;
}
