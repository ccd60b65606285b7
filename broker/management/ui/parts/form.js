/**
 * Forms: fields with labels and validation. Errors of the API are shown at the form. A form manages its own content, so
 * a refresh of the page does not change typed text.
 */

import { ConnectionLost } from "./api.js";
import { ArgumentsField } from "./arguments.js";
import { h } from "./element.js";
import { FieldError, makeControl, readControl } from "./field.js";
import { Notice } from "./notice.js";

let count = 0;

/** Form with labelled fields and a submit button. */
export class Form {
  /**
   * @param {Object} description
   * @param {Object[]} description.fields fields with
   *   `name`; `label`; `kind`: text (default), number, password, select, checkbox, textarea, file or arguments;
   *   `value`: initial value; `required`; `hint`: text below the control; `options`: of a select, strings or
   *   `{value, label}`; `suggestions`: strings for a text field, `{key, label, type, hint}` for arguments;
   *   `check(value, values)`: returns an error text or null; `wide`: uses the whole width;
   *   `editor(id)`: creates an object that replaces the control, like ArgumentsField
   * @param {string} description.submit label of the button
   * @param {function(Object): Promise<string|void>} description.action called with the values by name – strings,
   *   numbers (null if empty), booleans, objects (arguments), File; returns the confirmation text
   * @param {boolean} [description.keep] whether the values are kept after success
   */
  constructor({ fields, submit, action, keep = false }) {
    count += 1;
    this.id = `form-${count}`;
    this.action = action;
    this.keep = keep;
    this.fields = fields.map((field) => this.makeField(field));
    this.refused = new Notice("error");
    this.done = new Notice("done");
    this.button = h("button", { type: "submit" }, submit);
    this.element = h(
      "form",
      { class: "form", method: "post", novalidate: true, autocomplete: "off", own: true, on: { submit: (event) => this.submit(event) } },
      this.fields.map((field) => field.row),
      this.refused.element,
      h("p", { class: "buttons" }, this.button, this.done.element),
    );
  }

  makeField(field) {
    const id = `${this.id}-${field.name}`;
    const made = { ...field, error: h("span", { class: "field-error", id: `${id}-error` }) };
    made.editor = makeEditor(id, field);
    made.control = made.editor?.element ?? makeControl(id, field);
    made.control.setAttribute("aria-describedby", `${id}-hint ${id}-error`);
    const words = [field.label, field.required ? h("span", { class: "required", title: "required" }, " *") : null];
    const label = made.editor ? h("span", { class: "label", id: `${id}-label` }, words) : h("label", { for: id }, words);
    const hint = h("span", { class: "hint", id: `${id}-hint` }, field.hint ?? "");
    made.row = h("div", { class: `field ${field.wide || made.editor ? "wide" : ""}` }, label, made.control, hint, made.error);
    return made;
  }

  /** Return the values and mark invalid fields. @returns {Object|null} null if a field is invalid */
  read() {
    const values = {};
    const wrong = [];
    for (const field of this.fields) {
      try {
        values[field.name] = field.editor ? field.editor.read() : readControl(field);
      } catch (error) {
        if (!(error instanceof FieldError)) throw error;
        wrong.push([field, error.message]);
      }
    }
    for (const field of this.fields) {
      const said = wrong.some(([each]) => each === field) ? null : field.check?.(values[field.name], values);
      if (said) wrong.push([field, said]);
    }
    this.mark(wrong);
    return wrong.length === 0 ? values : null;
  }

  mark(wrong) {
    for (const field of this.fields) {
      const said = wrong.find(([each]) => each === field)?.[1] ?? "";
      field.error.textContent = said;
      field.control.toggleAttribute("aria-invalid", said !== "");
      if (said !== "") field.control.setAttribute("aria-invalid", "true");
    }
    const first = this.fields.find((field) => wrong.some(([each]) => each === field));
    (first?.editor?.firstInput() ?? first?.control)?.focus();
  }

  /** Set the values of fields. @param {Object} values by name */
  fill(values) {
    for (const field of this.fields) {
      if (!(field.name in values)) continue;
      const value = values[field.name];
      if (field.editor) field.editor.write(value ?? {});
      else if (field.kind === "checkbox") field.control.checked = Boolean(value);
      else field.control.value = value ?? "";
    }
  }

  /** Restore the initial values. */
  reset() {
    this.element.reset();
    for (const field of this.fields) field.editor?.write(field.value ?? {});
    this.mark([]);
  }

  async submit(event) {
    event.preventDefault();
    this.refused.clear();
    this.done.clear();
    const values = this.read();
    if (values === null) return;
    this.button.disabled = true;
    try {
      const said = await this.action(values);
      if (!this.keep) this.reset();
      if (said) this.done.show(said);
    } catch (error) {
      const doubt = error instanceof ConnectionLost ? " The outcome is unknown." : "";
      this.refused.show(error.message + doubt);
    } finally {
      this.button.disabled = false;
    }
  }
}

function makeEditor(id, field) {
  if (field.editor) return field.editor(id);
  return field.kind === "arguments" ? new ArgumentsField(id, field) : null;
}
