/** Login: a form for name and password, and a button for single sign-on. */

import { h } from "./element.js";
import { Notice } from "./notice.js";
import { logIn, signOn } from "./user.js";

/**
 * Make the login page.
 *
 * @param {string} reason why it is shown, "" initially
 * @param {import("./user.js").LoginWays} ways how people may log in
 * @param {function(import("./user.js").User): void} entered called with the user after login by the form
 * @returns {HTMLElement}
 */
export function loginPage(reason, ways, entered) {
  const failure = new Notice("error");
  return h(
    "main",
    { class: "login" },
    h("h1", null, "Leveret"),
    reason === "" ? null : h("p", { role: "status" }, reason),
    ways.signOn ? signOnButton(failure) : null,
    ways.password ? passwordForm(failure, entered) : failure.element,
  );
}

function signOnButton(failure) {
  const button = h("button", { type: "button" }, "Continue with single sign-on");
  button.addEventListener("click", async () => {
    button.disabled = true;
    failure.clear();
    try {
      location.assign(await signOn());
    } catch (error) {
      failure.show(error.message);
      button.disabled = false;
    }
  });
  return h("p", { class: "buttons" }, button);
}

function passwordForm(failure, entered) {
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
    "form",
    { method: "post", class: "login-form", on: { submit } },
    h("label", { for: "username" }, "User name"),
    name,
    h("label", { for: "password" }, "Password"),
    password,
    failure.element,
    h("p", { class: "buttons" }, button),
  );
}
