/** The controls of a form, by the kinds that form.js names. */

import { h } from "./element.js";

/** What is wrong with a field, for the user. */
export class FieldError extends Error {}

/**
 * Make the control of a field.
 *
 * @param {string} id of the element
 * @param {Object} field as form.js describes it
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
  // So that reset() comes back to it.
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

/** The list goes into the input, where browsers find it just as well. */
function withSuggestions(id, input, suggestions) {
  input.setAttribute("list", `${id}-list`);
  input.append(h("datalist", { id: `${id}-list` }, suggestions.map((value) => h("option", { value }))));
  return input;
}

/**
 * What a control holds.
 *
 * @param {Object} field with its `control`
 * @returns {string|number|boolean|File|null} null for no number and no file
 * @throws {FieldError} it is missing, or no number
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
 * A number that somebody has typed; commas, underscores and spaces between digits are fine.
 *
 * @throws {FieldError} it is none, or one that would come out as another
 */
export function readNumber(text) {
  const number = Number(text.replace(/[\s_,]/g, ""));
  if (text.trim() === "" || !Number.isFinite(number)) throw new FieldError("This has to be a number.");
  if (Number.isInteger(number) && !Number.isSafeInteger(number)) throw new FieldError("This is too large to be sent as it is.");
  return number;
}

function missing(label) {
  throw new FieldError(`${label} is missing.`);
}
