/** Adding a policy, or changing one. */

import { ApiError } from "../parts/api.js";
import { DefinitionField } from "../parts/definition_field.js";
import { Form } from "../parts/form.js";
import { confirmPolicy, savedText } from "./policy_preview.js";

/**
 * Make the form.
 *
 * @param {Object} context of the page
 * @param {import("./policy_kinds.js").Kind} kind
 * @param {Object} given
 * @param {Object[]} given.keys all keys that the API knows
 * @param {string[]} [given.vhosts] to choose from
 * @param {{vhost: string, name: string}} [given.policy] the one that is changed, instead of a choice
 * @param {function(): Promise} given.saved called when one has been saved
 * @returns {Form}
 */
export function policyForm(context, kind, { keys, vhosts = [], policy, saved }) {
  const form = new Form({
    fields: [...(policy ? [] : placeFields(context, vhosts)), ...ruleFields(kind, keys)],
    submit: "Preview and save …",
    keep: true,
    action: async (values) => {
      const { vhost, name } = policy ?? values;
      const preview = await save(context, kind, keys, vhost, name, values);
      if (preview === null) return "";
      form.reset();
      context.say(savedText(kind, name, preview));
      await saved();
      return "";
    },
  });
  return form;
}

function placeFields({ vhost, query }, vhosts) {
  const wanted = query.get("vhost") ?? vhost;
  return [
    { name: "vhost", label: "Virtual host", kind: "select", options: vhosts, value: vhosts.includes(wanted) ? wanted : vhosts[0] },
    { name: "name", label: "Name", required: true, hint: "A policy of that name is replaced." },
  ];
}

function ruleFields(kind, keys) {
  const offered = keys.filter((key) => !kind.isOperator || key.operator);
  const exchanges = kind.isOperator ? "" : " or exchanges";
  return [
    { name: "pattern", label: "Pattern", hint: `A regular expression, searched in the names of queues${exchanges}: ^work\\. is for all that begin with work., an empty one for all.` },
    { name: "applyTo", label: "Applies to", kind: "select", options: kind.applyTo, value: kind.applyTo[0].value },
    { name: "priority", label: "Priority", kind: "number", placeholder: "0", hint: `Of all ${kind.plural} that match, the one with the highest is in force, alone.` },
    { name: "definition", label: "Definition", required: true, editor: (id) => new DefinitionField(id, { keys: offered }) },
  ];
}

/** @returns {Promise<Object|null>} the dry run of what has been saved; null if it has not */
async function save({ api }, kind, keys, vhost, name, { pattern, applyTo, priority, definition }) {
  const path = [kind.path, vhost, name];
  const body = { pattern, definition, priority: priority ?? 0, "apply-to": applyTo };
  try {
    const [preview, known] = await Promise.all([
      api.request("PUT", path, { query: { dry_run: "true" }, body }),
      api.get([kind.path, vhost], { columns: "name" }),
    ]);
    const isThere = known.some((each) => each.name === name);
    const isSaved = await confirmPolicy({ kind, keys, name, preview, isThere, save: () => api.put(path, body) });
    return isSaved ? preview : null;
  } catch (error) {
    throw kind.isOperator ? error : asText(error);
  }
}

/** As in RabbitMQ the API escapes markup in what it says of policies; here it is shown as text anyway. */
function asText(error) {
  if (error instanceof ApiError) error.message = error.message.replaceAll("&lt;", "<").replaceAll("&gt;", ">");
  return error;
}

/**
 * The values of a form that the query of an address asks for.
 *
 * @param {URLSearchParams} query may have vhost, name, pattern, apply-to, priority and definition (as JSON)
 * @returns {Object|null} null if it asks for nothing
 */
export function wantedValues(query) {
  const names = { vhost: "vhost", name: "name", pattern: "pattern", "apply-to": "applyTo", priority: "priority" };
  const values = Object.fromEntries(Object.entries(names).filter(([name]) => query.has(name)).map(([name, field]) => [field, query.get(name)]));
  try {
    if (query.has("definition")) values.definition = JSON.parse(query.get("definition"));
  } catch {
    // An address that somebody has shortened: the rest still helps.
  }
  return Object.keys(values).length === 0 ? null : values;
}
