/** Editing the definition of a policy: a control for each key, made after what the API says of the key. */

import { h, patch } from "./element.js";
import { FieldError, readNumber } from "./field.js";
import { exactNumber, shortBytes, span } from "./format.js";

const INERT = "Accepted, without effect here";
const GROUPS = ["Queues", "Classic queues", "Quorum queues", "Streams", "Exchanges", INERT];
const READINGS = { bytes: shortBytes, milliseconds: (value) => span(value / 1000) };
/** Below that, a reading says nothing new. */
const READ_FROM = 1000;

/** Keys that are there, each with its control and its explanation, and buttons for all that may be added. */
export class DefinitionField {
  /**
   * @param {string} id for the elements' ids; the label's is `${id}-label`
   * @param {{keys: Object[]}} field `keys`: as of `GET /api/policy-keys`, those that may be used
   */
  constructor(id, { keys }) {
    this.id = id;
    this.keys = keys;
    this.entries = [];
    this.count = 0;
    this.rows = h("div", { class: "definition-rows" });
    this.offers = h("div", { class: "definition-offers", own: true });
    this.element = h("div", { class: "definition", role: "group", "aria-labelledby": `${id}-label`, own: true }, this.rows, this.offers);
    this.write({});
  }

  /** @returns {HTMLElement} where the focus goes if something is wrong */
  firstInput() {
    return this.element.querySelector("input, select, button");
  }

  /** Replace all rows. @param {Object<string, *>} definition */
  write(definition) {
    this.rows.replaceChildren();
    this.entries = [];
    for (const [name, value] of Object.entries(definition)) this.add(this.known(name) ?? { key: name }, value);
    this.offer();
  }

  /** @returns {Object<string, *>} the definition @throws {FieldError} a value cannot be */
  read() {
    // Without what objects have by themselves: a key may be called anything.
    const definition = Object.create(null);
    for (const entry of this.entries) {
      const name = entry.name();
      if (name === "") throw new FieldError("A key has no name.");
      if (name in definition) throw new FieldError(`${name} stands there twice.`);
      try {
        definition[name] = entry.read();
      } catch (error) {
        throw new FieldError(`${name}: ${error.message}`);
      }
    }
    if (this.entries.length === 0) throw new FieldError("There has to be one key at least: choose from those above.");
    return definition;
  }

  known(name) {
    return this.keys.find(({ key }) => key === name);
  }

  /** Show which keys are not there yet. */
  offer() {
    const there = new Set(this.entries.map((entry) => entry.name()));
    const left = this.keys.filter(({ key }) => !there.has(key));
    const groups = GROUPS.map((group) => [group, left.filter((key) => groupOf(key) === group)]).filter(([, keys]) => keys.length > 0);
    const other = { key: "other", title: "A key that this broker does not know, with a value in JSON", type: "button", class: "chip", on: { click: () => this.addByHand({ key: "" }) } };
    patch(
      this.offers,
      h("div", { key: "add" }, this.entries.length === 0 ? "Add a key:" : "Add another key:"),
      groups.map(([group, keys]) => h("div", { key: group, class: "chips" }, h("span", { class: "muted" }, `${group}:`), keys.map((key) => this.makeChip(key)))),
      h("div", { key: " ", class: "chips" }, h("span", { class: "muted" }, "Other:"), h("button", other, "key as JSON")),
    );
  }

  makeChip(key) {
    return h("button", { key: key.key, type: "button", class: "chip", title: key.summary, on: { click: () => this.addByHand(key) } }, key.key);
  }

  addByHand(key) {
    const entry = this.add(key);
    this.offer();
    entry.focus.focus();
  }

  add(key, value) {
    this.count += 1;
    const id = `${this.id}-${this.count}`;
    const entry = "type" in key ? makeKnown(id, key, value) : makeUnknown(id, key, value);
    const remove = h("button", { type: "button", class: "quiet", "aria-label": `Remove ${key.key || "key"}`, title: "Remove", on: { click: () => this.remove(entry) } }, "×");
    entry.row.append(remove);
    this.entries.push(entry);
    this.rows.append(entry.row);
    return entry;
  }

  remove(entry) {
    entry.row.remove();
    this.entries = this.entries.filter((each) => each !== entry);
    this.offer();
    this.firstInput().focus();
  }
}

function groupOf({ exchanges, queue_types: types, has_effect: hasEffect }) {
  if (!hasEffect) return INERT;
  if (exchanges) return "Exchanges";
  if (types.includes("classic")) return types.includes("quorum") ? "Queues" : "Classic queues";
  return types.includes("quorum") ? "Quorum queues" : "Streams";
}

/** A key of the registry. */
function makeKnown(id, key, value) {
  const hint = `${id}-hint`;
  const { control, read } = (key.values ? makeChoice : key.type === "boolean" ? makeBoolean : key.type === "integer" ? makeInteger : makeText)(id, key, value);
  control.setAttribute("aria-describedby", hint);
  const row = h(
    "div",
    { class: "definition-row" },
    h("label", { for: id }, key.key),
    h("span", { class: "definition-value" }, control, key.unit ? h("span", { class: "muted" }, key.unit) : null, makeReading(key, control)),
    h("span", { class: "hint", id: hint }, key.summary, bounds(key)),
  );
  return { row, focus: control, name: () => key.key, read };
}

function bounds({ minimum, maximum }) {
  if (maximum !== null) return ` From ${exactNumber(minimum ?? 0)} to ${exactNumber(maximum)}.`;
  return minimum > 0 ? ` From ${exactNumber(minimum)} on.` : "";
}

/** What a large number of bytes or milliseconds comes to, while it is being typed. */
function makeReading({ unit }, control) {
  const format = READINGS[unit];
  if (format === undefined) return null;
  const reading = h("output", { class: "muted", for: control.id });
  const show = () => {
    const value = Number(control.value.replace(/[\s_,]/g, ""));
    reading.textContent = value >= READ_FROM ? `= ${format(value)}` : "";
  };
  control.addEventListener("input", show);
  show();
  return reading;
}

function makeChoice(id, { values }, value) {
  const given = value === undefined || values.includes(value) ? values : [value, ...values];
  const options = given.map((each) => h("option", { value: String(each), selected: each === value }, String(each)));
  const control = h("select", { id }, options);
  return { control, read: () => given[control.selectedIndex] };
}

function makeBoolean(id, key, value) {
  return makeChoice(id, { values: [true, false] }, value);
}

function makeInteger(id, { minimum, maximum }, value) {
  const control = h("input", { id, type: "text", inputmode: "numeric", autocomplete: "off", value: value === undefined ? "" : String(value) });
  const read = () => {
    const number = readNumber(control.value);
    if (minimum !== null && number < minimum) throw new FieldError(`${exactNumber(minimum)} is the smallest value.`);
    if (maximum !== null && number > maximum) throw new FieldError(`${exactNumber(maximum)} is the largest value.`);
    return number;
  };
  return { control, read };
}

function makeText(id, { type }, value) {
  const placeholder = type === "age" ? "7D" : null;
  const control = h("input", { id, type: "text", autocomplete: "off", spellcheck: "false", placeholder, value: value === undefined ? "" : String(value) });
  return { control, read: () => control.value };
}

/** A key that the registry does not have: its name, too, is typed. */
function makeUnknown(id, { key }, value) {
  const shared = { type: "text", autocomplete: "off", spellcheck: "false" };
  const name = h("input", { ...shared, id: `${id}-name`, "aria-label": "Key", placeholder: "key", value: key });
  const control = h("input", { ...shared, id, "aria-label": "Value as JSON", placeholder: "value as JSON", value: value === undefined ? "" : JSON.stringify(value) });
  const row = h("div", { class: "definition-row" }, name, h("span", { class: "definition-value" }, control), h("span", { class: "hint" }, "Not a key that this broker knows."));
  const read = () => {
    try {
      return JSON.parse(control.value);
    } catch {
      throw new FieldError('This is no JSON; texts stand in quotation marks: "text".');
    }
  };
  return { row, focus: key === "" ? name : control, name: () => name.value, read };
}
