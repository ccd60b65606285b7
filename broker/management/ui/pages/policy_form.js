/** Form that adds or changes a policy. */

import { ApiError } from "../parts/api.js";
import { DefinitionField } from "../parts/definition_field.js";
import { Form } from "../parts/form.js";
import { confirmPolicy, savedText } from "./policy_preview.js";

/**
 * Make the form.
 *
 * @param {Object} context context of the page
 * @param {import("./policy_kinds.js").Kind} kind
 * @param {Object} given
 * @param {Object[]} given.keys all policy keys of the API
 * @param {string[]} [given.vhosts] virtual hosts to choose from
 * @param {{vhost: string, name: string}} [given.policy] policy to change; without it a new one is added
 * @param {function(): Promise} given.saved called after a policy was saved
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
      context.notify(savedText(kind, name, preview));
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
    { name: "name", label: "Name", required: true, hint: "An existing policy with this name is replaced." },
  ];
}

function ruleFields(kind, keys) {
  const offered = keys.filter((key) => !kind.isOperator || key.operator);
  const exchanges = kind.isOperator ? "" : " or exchanges";
  return [
    { name: "pattern", label: "Pattern", hint: `A regular expression, searched in the names of queues${exchanges}: ^work\\. matches all names that start with work., an empty one matches all.` },
    { name: "applyTo", label: "Applies to", kind: "select", options: kind.applyTo, value: kind.applyTo[0].value },
    { name: "priority", label: "Priority", kind: "number", placeholder: "0", hint: `Of all matching ${kind.plural}, only the one with the highest priority is in force.` },
    { name: "definition", label: "Definition", required: true, editor: (id) => new DefinitionField(id, { keys: offered }) },
  ];
}

/** Save after confirmation. @returns {Promise<Object|null>} the dry run of the saved policy; null if cancelled */
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

/** Undo the HTML escaping in policy errors of the API, as in RabbitMQ. The UI shows them as text. */
function asText(error) {
  if (error instanceof ApiError) error.message = error.message.replaceAll("&lt;", "<").replaceAll("&gt;", ">");
  return error;
}

/**
 * Return the form values in the query of an address.
 *
 * @param {URLSearchParams} query may have vhost, name, pattern, apply-to, priority and definition (as JSON)
 * @returns {Object|null} null if the query has none
 */
export function wantedValues(query) {
  const names = { vhost: "vhost", name: "name", pattern: "pattern", "apply-to": "applyTo", priority: "priority" };
  const values = Object.fromEntries(Object.entries(names).filter(([name]) => query.has(name)).map(([name, field]) => [field, query.get(name)]));
  try {
    if (query.has("definition")) values.definition = JSON.parse(query.get("definition"));
  } catch {
    // The definition is invalid, for example truncated; the other values are still used.
  }
  return Object.keys(values).length === 0 ? null : values;
}
