/** Page with the nodes of the cluster: who leads, who is in sync, how far each is, and a button that lets another lead. */

import { badge } from "../parts/badge.js";
import { confirmAction } from "../parts/dialog.js";
import { h, patch } from "../parts/element.js";
import { bytes, number, span } from "../parts/format.js";
import { emptyState, heading, plainTable, properties, section } from "../parts/layout.js";

const COLUMNS = [
  { label: "Node" },
  { label: "Role" },
  { label: "State", title: "Whether it is connected, and gets a copy first" },
  { label: "In sync", title: "Whether it has everything that was confirmed, and may lead" },
  { label: "Operations behind", numeric: true, title: "Changes of files that it has not acknowledged yet" },
  { label: "Bytes behind", numeric: true },
  { label: "Time behind", numeric: true },
  { label: "Action" },
];

export default {
  title: () => "Replication",

  mount(context) {
    patch(context.root, heading("Replication"));
    return async () => {
      const found = await context.api.get(["replication"]);
      patch(context.root, heading("Replication"), found.role === "alone" ? none() : [notice(found), facts(found), nodes(context, found)]);
    };
  },
};

function none() {
  return emptyState("The broker is alone.", "Set replication.register in its configuration: standbys on other machines then have everything that was confirmed, and one of them leads when this node is lost.");
}

function notice({ copies, min_copies: needed }) {
  if (copies >= needed) return null;
  return h("p", { class: "notice error", key: "notice", role: "alert" }, `Too few copies: ${copies} of ${needed} nodes have everything that was confirmed, so publishers are blocked.`);
}

function facts({ leader, epoch, copies, min_copies: needed, operation }) {
  return properties([
    ["Leader", leader],
    ["Epoch", number(epoch), "Number of its leadership"],
    ["Copies", `${copies} in sync; ${needed} needed`],
    ["Last operation", number(operation)],
  ]);
}

function nodes(context, { leader, standbys }) {
  const first = { key: leader, cells: [leader, "leader", "serves clients", badge("in sync", "It has everything that was confirmed", "good"), null, null, null, null] };
  const rows = standbys.map((node) => ({
    key: node.name,
    cells: [node.name, node.role, state(node), inSync(node), figure(node.lag_operations, number), figure(node.lag_bytes, bytes), figure(node.lag_seconds, span), action(context, node)],
  }));
  return section("Nodes", plainTable("nodes", COLUMNS, [first, ...rows]));
}

function figure(value, format) {
  return value === null ? null : format(value);
}

function state({ state: doing, copy_bytes_sent: sent, copy_bytes: whole }) {
  if (doing === "away") return h("strong", { class: "bad" }, "away");
  return doing === "copy" ? `gets a copy: ${whole > 0 ? `${Math.floor((100 * sent) / whole)}%` : "begins"}` : "follows";
}

function inSync({ in_sync: is, is_observer: observes }) {
  if (is) return badge("in sync", "It has everything that was confirmed", "good");
  return observes ? null : badge("not in sync", "It may miss what was confirmed, and cannot lead", "warning");
}

function action(context, node) {
  if (!context.user.may("administrator") || !node.in_sync || !node.is_connected) return null;
  return h("button", { type: "button", class: "quiet", on: { click: () => failOver(context, node.name) } }, "Let it lead …");
}

async function failOver(context, name) {
  const isDone = await confirmAction({
    title: "Let another node lead",
    name,
    text: "All clients of this node are closed, and may connect again at once. Nothing that was confirmed is lost.",
    verb: "Let it lead",
    action: () => context.api.post(["replication", "failover"], { node: name }),
  });
  if (isDone) context.notify(`${name} is about to lead.`);
}
