/** Page of a policy: its definition and where it is in force. Also used for operator policies. */

import { address, exchangeAddress } from "../parts/address.js";
import { ApiError } from "../parts/api.js";
import { badge, percentBar } from "../parts/badge.js";
import { listColumns } from "../parts/columns.js";
import { confirmAction } from "../parts/dialog.js";
import { h, patch } from "../parts/element.js";
import { countedNoun, nameText } from "../parts/format.js";
import { choice, emptyState, folded, heading, properties, section } from "../parts/layout.js";
import { Table } from "../parts/table.js";
import { definitionTable } from "./policy_definition.js";
import { policyForm } from "./policy_form.js";
import { appliesTo, capital, OPERATOR_POLICY, patternOf, POLICY } from "./policy_kinds.js";

/**
 * Make the page of a policy of a kind.
 *
 * @param {import("./policy_kinds.js").Kind} kind
 */
function policyPage(kind) {
  return {
    title: ({ name }) => `${capital(kind.name)} ${name}`,

    mount(context) {
      patch(context.root, heading(`${capital(kind.name)} ${context.params.name}`));
      const page = new PolicyPage(context, kind);
      return () => page.refresh();
    },
  };
}

class PolicyPage {
  constructor(context, kind) {
    Object.assign(this, { context, kind, policy: null, keys: null, change: null });
    this.path = [kind.path, context.params.vhost, context.params.name];
    this.coverage = new PolicyCoverage(context, kind);
    this.mayChange = context.user.may(kind.tag);
  }

  async refresh() {
    const { api, params } = this.context;
    const [all, keys] = await Promise.all([
      // All users may read the list, but only users who may change policies can read a single one.
      api.get([this.kind.path, params.vhost], { counts: "true" }),
      this.keys ?? api.get(["policy-keys"]),
    ]);
    const policy = all.find(({ name }) => name === params.name);
    if (!policy) throw new ApiError(404, "Object Not Found", "Not Found");
    Object.assign(this, { policy, keys });
    if (this.mayChange) this.change ??= this.makeForm();
    await this.coverage.refresh(policy);
    this.show();
  }

  show() {
    const { context, kind, policy } = this;
    const keys = new Map(this.keys.map((key) => [key.key, key]));
    patch(
      context.root,
      heading([`${capital(kind.name)} ${policy.name}`], this.mayChange ? this.buttons() : null),
      properties([
        ["Virtual host", policy.vhost],
        ["Pattern", patternOf(policy)],
        ["Applies to", appliesTo(kind, policy)],
        ["Priority", String(policy.priority), "Of all matching policies, only the one with the highest priority is in force"],
        ["In force on", this.where()],
      ]),
      section("Definition", definitionTable(policy.definition, keys, kind.isOperator)),
      this.change,
      this.coverage.sections(policy),
    );
  }

  where() {
    const { queues_in_force: inQueues, exchanges_in_force: inExchanges } = this.policy;
    const queues = countedNoun(inQueues, "queue");
    return this.kind.isOperator ? queues : `${queues}, ${countedNoun(inExchanges, "exchange")}`;
  }

  buttons() {
    const open = () => {
      if (!this.change.open) this.fill();
      this.change.open = true;
      this.change.scrollIntoView({ block: "nearest" });
      this.change.querySelector(".definition-row input, .definition-row select")?.focus();
    };
    return [
      h("button", { key: "change", type: "button", on: { click: open } }, "Change …"),
      h("button", { key: "delete", type: "button", on: { click: () => this.remove() } }, "Delete …"),
    ];
  }

  /** Make the form. Opening it fills it with the current values. */
  makeForm() {
    const { context, kind } = this;
    const { vhost, name } = context.params;
    const close = () => {
      change.open = false;
      return context.refresh();
    };
    const form = policyForm(context, kind, { keys: this.keys, policy: { vhost, name }, saved: close });
    const change = folded(`Change this ${kind.name}`, form.element);
    let isFilled = false;
    this.fill = () => {
      form.fill({ ...this.policy, applyTo: this.policy["apply-to"] });
      isFilled = true;
    };
    change.addEventListener("toggle", () => {
      if (!change.open) isFilled = false;
      else if (!isFilled) this.fill();
    });
    return change;
  }

  async remove() {
    const { context, kind } = this;
    const isDone = await confirmAction({
      title: `Delete ${kind.name}`,
      name: context.params.name,
      text: `It is in force on ${this.where()}. The next matching policy takes its place, if there is one.`,
      verb: "Delete",
      action: () => context.api.delete(this.path),
    });
    if (!isDone) return;
    context.notify(`${capital(kind.name)} ${context.params.name} is deleted.`);
    context.navigate(address(kind.path));
  }
}

export default policyPage(POLICY);
export const operator = policyPage(OPERATOR_POLICY);

/** Columns that exchanges do not have. */
const OF_QUEUES = ["messages_ready", "message_bytes_ready", "fill_percent"];
const CHOICES = [["", "all that it matches"], ["true", "where it is in force"], ["false", "where it is not"]];

/** Tables of one policy. */
class PolicyCoverage {
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
