/** Page with the list of policies, also used for operator policies. */

import { address } from "../parts/address.js";
import { listColumns } from "../parts/columns.js";
import { h, patch } from "../parts/element.js";
import { nameText, number } from "../parts/format.js";
import { emptyState, folded, heading } from "../parts/layout.js";
import { localPage } from "../parts/local_page.js";
import { Table } from "../parts/table.js";
import { definitionList } from "./policy_definition.js";
import { policyForm, wantedValues } from "./policy_form.js";
import { OPERATOR_POLICY, POLICY, appliesTo, capital, patternOf } from "./policy_kinds.js";

const EXPLAINED = {
  policies: "Of all policies whose pattern matches, only the one with the highest priority applies to a queue or exchange.",
  "operator-policies": "They restrict what users can set: the smallest limit of operator policy, policy and queue arguments applies.",
};

/**
 * Make the page that lists the policies of a kind.
 *
 * @param {import("./policy_kinds.js").Kind} kind
 */
function policyListPage(kind) {
  return {
    title: () => capital(kind.plural),

    mount(context) {
      patch(context.root, heading(capital(kind.plural)));
      let keys = null;
      let form = null;
      const table = makeTable(context, kind, () => keys);
      return async () => {
        keys ??= new Map((await context.api.get(["policy-keys"])).map((key) => [key.key, key]));
        form ??= await makeForm(context, kind, [...keys.values()]);
        await table.refresh();
        patch(context.root, heading(capital(kind.plural)), h("p", { class: "muted" }, EXPLAINED[kind.path]), table.element, form);
        focusOpenForm(context, form);
      };
    },
  };
}

function makeTable(context, kind, keys) {
  return new Table({
    id: kind.path,
    caption: kind.plural,
    one: kind.name,
    sort: "name",
    columns: columns(kind, keys),
    rowKey: ({ vhost, name }) => JSON.stringify([vhost, name]),
    load: async (query) => localPage(await context.api.get(context.vhost === "" ? [kind.path] : [kind.path, context.vhost], { counts: "true" }), query),
    empty: () => emptyList(context, kind),
  });
}

function columns(kind, keys) {
  const found = listColumns("policies", {
    name: ({ vhost, name }) => h("a", { href: address(kind.path, vhost, name) }, nameText(name || "(no name)")),
    pattern: patternOf,
    "apply-to": (policy) => appliesTo(kind, policy),
    definition: ({ definition }) => definitionList(definition, keys()),
    queues_in_force: ({ queues_in_force: count }) => inForce(count),
    exchanges_in_force: ({ exchanges_in_force: count }) => inForce(count),
  });
  return kind.isOperator ? found.slice(0, -1) : found;
}

function inForce(count) {
  return count === 0 ? h("span", { class: "muted" }, "none") : number(count);
}

function emptyList({ user }, kind) {
  const advice = user.may(kind.tag)
    ? `Add one below: max-length with a pattern of queue names keeps all these queues short.`
    : `Adding one requires the tag ${kind.tag}.`;
  return emptyState(`There are no ${kind.plural} here.`, advice);
}

async function makeForm(context, kind, keys) {
  if (!context.user.may(kind.tag)) return h("p", { class: "muted" }, `Adding or changing ${kind.plural} requires the tag ${kind.tag}.`);
  const vhosts = (await context.api.get(["vhosts"], { columns: "name" })).map(({ name }) => name);
  const form = policyForm(context, kind, { keys, vhosts, saved: context.refresh });
  const made = folded(`Add a ${kind.name}`.replace("a o", "an o"), form.element);
  const wanted = wantedValues(context.query);
  if (wanted !== null) form.fill(wanted);
  made.open = wanted !== null;
  return made;
}

/** Open the form if the address requests it. Must be called once, when the form is in the page. */
function focusOpenForm({ query }, form) {
  if (!form.open || form.dataset.seen) return;
  form.dataset.seen = "yes";
  form.scrollIntoView();
  form.querySelector(query.get("name") === null ? "input[name=name]" : "[name=pattern]").focus();
}

export default policyListPage(POLICY);
export const operator = policyListPage(OPERATOR_POLICY);
