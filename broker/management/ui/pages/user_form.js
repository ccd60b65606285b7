/** Adding a user, and changing its password and tags. */

import { Form } from "../parts/form.js";

const TAGS = [
  ["administrator", "Sees and does everything."],
  ["monitoring", "Sees all virtual hosts, connections and the node."],
  ["policymaker", "Sets policies in its virtual hosts."],
  ["management", "Logs in here, and sees its virtual hosts."],
];
const SET = { value: "set", label: "Set a password" };
const NONE = { value: "none", label: "No password: cannot log in by one" };
const KEEP = { value: "keep", label: "Keep the password" };

/**
 * Make the form.
 *
 * @param {Object} context of the page
 * @param {{name?: string, tags?: string[], saved: function(string): Promise}} given `name` and `tags` of the user that is
 *   changed; `saved`: called with its name when it has been
 * @returns {Form}
 */
export function userForm(context, { name, tags = [], saved }) {
  const known = TAGS.map(([tag]) => tag);
  return new Form({
    fields: [
      ...(name === undefined ? [{ name: "name", label: "User name", required: true }] : []),
      { name: "how", label: "Log-in", kind: "select", options: name === undefined ? [SET, NONE] : [KEEP, SET, NONE] },
      { name: "password", label: "Password", kind: "password", check: (value, { how }) => checkPassword(value, how) },
      { name: "again", label: "Password again", kind: "password", check: (value, values) => (value === values.password ? null : "The two are not the same.") },
      ...TAGS.map(([tag, hint]) => ({ name: `tag ${tag}`, label: tag, kind: "checkbox", value: tags.includes(tag), hint })),
      { name: "others", label: "Other tags", value: tags.filter((tag) => !known.includes(tag)).join(", "), hint: "With commas in between; the broker itself does not look at them." },
    ],
    submit: name === undefined ? "Add user" : "Save",
    keep: true,
    action: async (values) => {
      const chosen = known.filter((tag) => values[`tag ${tag}`]);
      const whose = name ?? values.name;
      await put(context, whose, values, [...chosen, ...values.others.split(",").map((tag) => tag.trim()).filter(Boolean)]);
      await saved(whose);
      return `User ${whose} is saved.`;
    },
  });
}

function checkPassword(value, how) {
  if (how === "set") return value === "" ? "Password is missing." : null;
  return value === "" ? null : "It would not be used: choose to set a password.";
}

/** The API replaces password and tags together, so a password is kept by giving back its hash. */
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
