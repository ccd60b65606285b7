/** Login form. */

import { h } from "./element.js";
import { Notice } from "./notice.js";
import { logIn } from "./user.js";

/**
 * Make the login form.
 *
 * @param {string} reason why the form is shown, "" initially
 * @param {function(import("./user.js").User): void} entered called with the user after login
 * @returns {HTMLElement}
 */
export function loginPage(reason, entered) {
  const failure = new Notice("error");
  const name = h("input", { id: "username", name: "username", autocomplete: "username", autocapitalize: "none", spellcheck: "false", required: true });
  const password = h("input", { id: "password", name: "password", type: "password", autocomplete: "current-password", required: true });
  const button = h("button", { type: "submit" }, "Log in");
  const submit = async (event) => {
    event.preventDefault();
    button.disabled = true;
    failure.clear();
    try {
      const user = await logIn(name.value, password.value);
      password.value = "";
      entered(user);
    } catch (error) {
      failure.show(error.message);
      password.select();
    } finally {
      button.disabled = false;
    }
  };
  return h(
    "main",
    { class: "login" },
    h("h1", null, "Leveret"),
    reason === "" ? null : h("p", { role: "status" }, reason),
    h(
      "form",
      { method: "post", class: "login-form", on: { submit } },
      h("label", { for: "username" }, "User name"),
      name,
      h("label", { for: "password" }, "Password"),
      password,
      failure.element,
      h("p", { class: "buttons" }, button),
    ),
  );
}
