/** Form controls, by the kinds that form.js defines. */

import { h, patch } from "./element.js";

/** Validation error of a field; the message is shown to the user. */
export class FieldError extends Error {}

/**
 * Create the control of a field.
 *
 * @param {string} id id of the element
 * @param {Object} field field description, see form.js
 * @returns {HTMLElement}
 */
export function makeControl(id, field) {
  const shared = { id, name: field.name, required: Boolean(field.required) };
  if (field.kind === "select") return makeSelect(shared, field);
  if (field.kind === "textarea") return h("textarea", { ...shared, rows: field.rows ?? 4, spellcheck: "false", value: field.value ?? "" });
  if (field.kind === "checkbox") return h("input", { ...shared, type: "checkbox", required: false, checked: field.value === true });
  if (field.kind === "file") return h("input", { ...shared, type: "file", accept: field.accept ?? null });
  const type = field.kind === "password" ? "password" : "text";
  const input = h("input", {
    ...shared,
    type,
    inputmode: field.kind === "number" ? "numeric" : null,
    autocomplete: type === "password" ? "new-password" : "off",
    spellcheck: "false",
    placeholder: field.placeholder ?? null,
  });
  // reset() restores this value.
  input.defaultValue = field.value ?? "";
  return field.suggestions ? withSuggestions(id, input, field.suggestions) : input;
}

function makeSelect(shared, field) {
  const options = field.options.map((option) => (typeof option === "string" ? { value: option, label: option } : option));
  return h(
    "select",
    shared,
    options.map(({ value, label }) => {
      const made = h("option", { value }, label);
      made.defaultSelected = value === field.value;
      return made;
    }),
  );
}

/** Add a list of suggestions. It is a child of the input, so that the control remains one element. */
function withSuggestions(id, input, suggestions) {
  input.setAttribute("list", `${id}-list`);
  input.append(h("datalist", { id: `${id}-list` }, suggestions.map((value) => h("option", { value }))));
  return input;
}

/**
 * Return the value of a control.
 *
 * @param {Object} field field with its `control`
 * @returns {string|number|boolean|File|null} null for no number and no file
 * @throws {FieldError} a required value is missing, or the text is not a number
 */
export function readControl(field) {
  const { control, kind, required, label } = field;
  if (kind === "checkbox") return control.checked;
  if (kind === "file") return required && control.files.length === 0 ? missing(label) : control.files[0] ?? null;
  const text = control.value;
  if (required && text === "") return missing(label);
  if (kind !== "number") return text;
  return text.trim() === "" ? null : readNumber(text);
}

/**
 * Parse a typed number. Commas, underscores and spaces are ignored.
 *
 * @throws {FieldError} the text is not a number, or an integer that JavaScript cannot represent exactly
 */
export function readNumber(text) {
  const number = Number(text.replace(/[\s_,]/g, ""));
  if (text.trim() === "" || !Number.isFinite(number)) throw new FieldError("This must be a number.");
  if (Number.isInteger(number) && !Number.isSafeInteger(number)) throw new FieldError("This is too large to be sent exactly.");
  return number;
}

function missing(label) {
  throw new FieldError(`${label} is missing.`);
}

/** Select for the virtual hosts that the user sees. The default is that of the pages; hidden if there is only one. */
export class VhostField {
  /** @param {Object} context context of the page */
  constructor(context) {
    this.context = context;
    this.description = { name: "vhost", label: "Virtual host", kind: "select", options: [] };
  }

  /** Attach to a form. @param {import("./form.js").Form} form form that has `description` among its fields */
  follow(form) {
    Object.assign(this, form.fields.find(({ name }) => name === "vhost"));
    // The reset event is sent before the fields are reset.
    form.element.addEventListener("reset", () => queueMicrotask(() => this.selectDefault()));
  }

  /** Update the options. Must be called on every refresh. */
  update() {
    const { vhosts, vhost } = this.context;
    const isFirst = this.control.options.length === 0;
    patch(this.control, vhosts.map((name) => h("option", { key: name, value: name }, name)));
    this.row.hidden = vhosts.length < 2;
    if (isFirst || vhost !== this.followed) this.selectDefault();
  }

  selectDefault() {
    const { vhosts, vhost } = this.context;
    this.followed = vhost;
    this.control.value = vhost !== "" ? vhost : vhosts.includes("/") ? "/" : (vhosts[0] ?? "");
  }
}
