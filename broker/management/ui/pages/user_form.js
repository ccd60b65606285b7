/** Form that adds a user, or changes its password and tags. */

import { Form } from "../parts/form.js";

const TAGS = [
  ["administrator", "Full access."],
  ["monitoring", "Can see all virtual hosts, connections and the node."],
  ["policymaker", "Can set policies in its virtual hosts."],
  ["management", "Can log in to this UI and see its virtual hosts."],
];
const SET = { value: "set", label: "Set a password" };
const NONE = { value: "none", label: "No password: login with a password is disabled" };
const KEEP = { value: "keep", label: "Keep the password" };

/**
 * Make the form.
 *
 * @param {Object} context context of the page
 * @param {{name?: string, tags?: string[], saved: function(string): Promise}} given `name` and `tags` of the user to
 *   change; `saved`: called with its name after it was saved
 * @returns {Form}
 */
export function userForm(context, { name, tags = [], saved }) {
  const known = TAGS.map(([tag]) => tag);
  return new Form({
    fields: [
      ...(name === undefined ? [{ name: "name", label: "User name", required: true }] : []),
      { name: "how", label: "Log-in", kind: "select", options: name === undefined ? [SET, NONE] : [KEEP, SET, NONE] },
      { name: "password", label: "Password", kind: "password", check: (value, { how }) => checkPassword(value, how) },
      { name: "again", label: "Password again", kind: "password", check: (value, values) => (value === values.password ? null : "The passwords do not match.") },
      ...TAGS.map(([tag, hint]) => ({ name: `tag ${tag}`, label: tag, kind: "checkbox", value: tags.includes(tag), hint })),
      { name: "others", label: "Other tags", value: tags.filter((tag) => !known.includes(tag)).join(", "), hint: "Separated by commas; they have no meaning for the broker." },
    ],
    submit: name === undefined ? "Add user" : "Save",
    keep: true,
    action: async (values) => {
      const chosen = known.filter((tag) => values[`tag ${tag}`]);
      const username = name ?? values.name;
      await put(context, username, values, [...chosen, ...values.others.split(",").map((tag) => tag.trim()).filter(Boolean)]);
      await saved(username);
      return `User ${username} is saved.`;
    },
  });
}

function checkPassword(value, how) {
  if (how === "set") return value === "" ? "Password is missing." : null;
  return value === "" ? null : "The password is not used unless you choose to set a password.";
}

/** Save a user. The API replaces password and tags together, so an existing password is kept by sending its hash. */
async function put({ api }, name, { how, password }, tags) {
  const body = { tags };
  if (how === "set") body.password = password;
  if (how === "none") body.password_hash = "";
  if (how === "keep") {
    const user = await api.get(["users", name]);
    Object.assign(body, { password_hash: user.password_hash, hashing_algorithm: user.hashing_algorithm });
  }
  await api.put(["users", name], body);
}
