/** Resource usage, limits and alarms of the node. */

import { fillBar } from "../parts/badge.js";
import { Chart } from "../parts/chart.js";
import { h, patch } from "../parts/element.js";
import { bytes, exactNumber, number, shortBytes, span } from "../parts/format.js";
import { properties } from "../parts/layout.js";
import { levels } from "../parts/series.js";

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
