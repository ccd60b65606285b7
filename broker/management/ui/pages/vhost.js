/** Page of a virtual host: messages, permissions, limits. */

import { address } from "../parts/address.js";
import { Chart } from "../parts/chart.js";
import { confirmAction } from "../parts/dialog.js";
import { h, patch } from "../parts/element.js";
import { countedNoun, number, rate, shortRate, yesNo } from "../parts/format.js";
import { folded, heading, properties, section, tiles } from "../parts/layout.js";
import { RangeChoice, levels, rates } from "../parts/series.js";
import { VHOST_LIMITS, limitForm, limitTable } from "./limits.js";
import { OF_VHOST, PermissionsPart } from "./permissions.js";
import { vhostForm } from "./vhosts.js";

const LENGTHS = [["messages_ready", "Ready"], ["messages_unacknowledged", "Unacked"]];
const RATES = [["publish", "Publish"], ["deliver_get", "Deliver"], ["ack", "Ack"]];
const COUNT_ONLY = { page: 1, page_size: 1, columns: "name" };

export default {
  title: ({ name }) => `Virtual host ${name}`,

  mount(context) {
    patch(context.root, heading(`Virtual host ${context.params.name}`));
    const page = new VhostPage(context);
    return () => page.refresh();
  },
};

class VhostPage {
  constructor(context) {
    Object.assign(this, { context, name: context.params.name, parts: null });
    this.range = new RangeChoice(() => context.refresh());
    this.lengths = new Chart({ title: "Queued messages", stacked: true });
    this.rates = new Chart({ title: "Message rates", format: shortRate, empty: "No message has been published or delivered yet." });
  }

  async refresh() {
    const { context, name } = this;
    const { api } = context;
    const [vhost, permissions, topicPermissions, limits, queues] = await Promise.all([
      api.get(["vhosts", name], this.range.query),
      api.get(["vhosts", name, "permissions"]),
      api.get(["vhosts", name, "topic-permissions"]),
      api.get(["vhost-limits", name]),
      api.get(["queues", name], COUNT_ONLY),
    ]);
    this.parts ??= await this.makeParts(vhost);
    this.draw(vhost);
    patch(
      context.root,
      heading(`Virtual host ${name}`, this.range.element, h("button", { type: "button", on: { click: () => this.remove() } }, "Delete …")),
      totals(vhost, queues.total_count),
      h("div", { class: "charts" }, this.lengths.element, this.rates.element),
      section("About", about(vhost)),
      section("Permissions", this.parts.permissions.permissions(permissions)),
      folded("Topic permissions", this.parts.permissions.topicPermissions(topicPermissions)),
      section("Limits", limitTable(context, VHOST_LIMITS, limits, true), this.parts.limits.element),
      this.parts.change,
    );
  }

  draw(vhost) {
    const stats = vhost.message_stats ?? {};
    this.lengths.update(LENGTHS.map(([key, label]) => ({ label, points: levels(vhost[`${key}_details`]) })));
    this.rates.update(RATES.map(([key, label]) => ({ label, points: rates(stats[`${key}_details`]) })));
  }

  async makeParts(vhost) {
    const { context, name } = this;
    const users = await context.api.get(["users"], { columns: "name" });
    return {
      permissions: new PermissionsPart(context, OF_VHOST, users.map((user) => user.name)),
      limits: limitForm(context, VHOST_LIMITS, { name }),
      change: folded("Change description, tags, default queue type or tracing", vhostForm(context, { vhost, saved: context.refresh }).element),
    };
  }

  async remove() {
    const { context, name } = this;
    // Reloaded, because the page may be outdated while refresh is off.
    const [vhost, queues] = await Promise.all([context.api.get(["vhosts", name]), context.api.get(["queues", name], COUNT_ONLY)]);
    const isDone = await confirmAction({
      title: "Delete virtual host",
      name,
      text: `${countedNoun(queues.total_count, "queue")} with ${countedNoun(vhost.messages ?? 0, "message")} will be deleted, with all exchanges, bindings, policies and permissions. Its connections are closed.`,
      verb: "Delete",
      action: () => context.api.delete(["vhosts", name]),
    });
    if (!isDone) return;
    context.notify(`Virtual host ${name} is deleted.`);
    await context.reloadVhosts();
    context.navigate(address("vhosts"));
  }
}

function totals({ messages_ready: ready, messages_unacknowledged: unacked, message_stats: stats = {} }, queues) {
  return tiles([
    ["Queues", number(queues)],
    ["Ready", number(ready ?? 0)],
    ["Unacked", number(unacked ?? 0)],
    ["Published", rate(stats.publish_details?.rate ?? 0)],
    ["Delivered", rate(stats.deliver_get_details?.rate ?? 0)],
  ]);
}

function about({ description, tags, default_queue_type: type, tracing }) {
  return properties([
    ["Description", description || null],
    ["Tags", tags.length > 0 ? tags.join(", ") : null],
    ["Default queue type", type === "undefined" ? "classic" : type],
    ["Tracing", yesNo(tracing), "Whether all published and delivered messages are copied to amq.rabbitmq.trace"],
  ]);
}
