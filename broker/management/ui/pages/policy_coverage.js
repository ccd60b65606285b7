/** Objects on which a policy is in force, and objects that it matches but on which another policy is in force. */

import { address, exchangeAddress } from "../parts/address.js";
import { badge, percentBar } from "../parts/badge.js";
import { listColumns } from "../parts/columns.js";
import { h } from "../parts/element.js";
import { nameText } from "../parts/format.js";
import { choice, emptyState, section } from "../parts/layout.js";
import { Table } from "../parts/table.js";

/** Columns that exchanges do not have. */
const OF_QUEUES = ["messages_ready", "message_bytes_ready", "fill_percent"];
const CHOICES = [["", "all that it matches"], ["true", "where it is in force"], ["false", "where it is not"]];

/** Tables of one policy. */
export class PolicyCoverage {
  /**
   * @param {Object} context context of the policy's page
   * @param {import("./policy_kinds.js").Kind} kind
   */
  constructor(context, kind) {
    Object.assign(this, { context, kind, wanted: "" });
    const choose = (value) => {
      this.wanted = value;
      context.refresh();
    };
    this.choice = choice("choose-coverage", "Show", CHOICES, "", choose);
    this.queues = this.makeTable("queues", this.columns(({ vhost, name }) => address("queues", vhost, name)));
    this.exchanges = this.makeTable("exchanges", this.columns(({ vhost, name }) => exchangeAddress(vhost, name)).filter(({ key }) => !OF_QUEUES.includes(key)));
  }

  /** Load the objects that a policy matches. @param {Object} policy policy object of the API */
  async refresh(policy) {
    await Promise.all(this.tables(policy).map(([, table]) => table.refresh()));
  }

  /** @param {Object} policy as in the API @returns {HTMLElement[]} */
  sections(policy) {
    return this.tables(policy).map(([title, table], index) => section(title, index === 0 ? this.choice : null, table.element));
  }

  tables(policy) {
    const applyTo = policy["apply-to"];
    return [
      ["Queues", this.queues, applyTo !== "exchanges"],
      ["Exchanges", this.exchanges, !this.kind.isOperator && ["all", "exchanges"].includes(applyTo)],
    ].filter(([, , isShown]) => isShown);
  }

  makeTable(what, columns) {
    const { vhost, name } = this.context.params;
    return new Table({
      id: `${this.kind.path}-${what}`,
      caption: what,
      columns,
      needs: ["vhost", "name"],
      rowKey: (row) => row.name,
      load: (query) => this.context.api.get([this.kind.path, vhost, name, what], { ...query, in_force: this.wanted }),
      empty: () => this.emptyList(what),
    });
  }

  emptyList(what) {
    if (this.wanted === "true") return emptyState(`It is in force on no ${what}.`, "Choose above to see the objects that it matches.");
    if (this.wanted === "false") return emptyState(`There are no ${what} that it matches without being in force.`, "No other policy has precedence.");
    return emptyState(`The pattern matches no ${what}.`, "It will be in force when one with a matching name is declared.");
  }

  columns(link) {
    return listColumns("policy-matches", {
      name: (row) => h("a", { href: link(row) }, nameText(row.name || "(AMQP default)")),
      in_force: ({ in_force: inForce }) => (inForce ? badge("yes", "this one is in force", "good") : badge("no", "this one is not in force", "warning")),
      rival: (row) => this.rival(row),
      reason: ({ reason }) => reason && h("span", { class: "sentence" }, reason),
      fill_percent: ({ fill_percent: percent }) => percentBar(percent, "Fill"),
    });
  }

  rival({ vhost, in_force: inForce, rival }) {
    if (rival !== null) return h("a", { href: address(this.kind.path, vhost, rival) }, nameText(rival));
    return inForce ? null : h("span", { class: "muted" }, "none");
  }
}
