/** Editor for policy definitions, with a control per key that depends on the API's description of the key. */

import { h, patch } from "./element.js";
import { FieldError, readNumber } from "./field.js";
import { exactNumber, shortBytes, span } from "./format.js";

const INERT = "Accepted, without effect in Leveret";
const GROUPS = ["Queues", "Classic queues", "Quorum queues", "Streams", "Exchanges", INERT];
const READINGS = { bytes: shortBytes, milliseconds: (value) => span(value / 1000) };
/** Smaller values are not repeated in other units. */
const READ_FROM = 1000;

/** Editor with the keys of a definition, their controls and descriptions, and buttons that add further keys. */
export class DefinitionField {
  /**
   * @param {string} id prefix of the elements' ids; the label has `${id}-label`
   * @param {{keys: Object[]}} field `keys`: allowed keys, as in `GET /api/policy-keys`
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

  /** @returns {HTMLElement} the element that gets the focus after an error */
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

  /** @returns {Object<string, *>} the definition @throws {FieldError} a value is invalid */
  read() {
    // Without a prototype, because keys may have the names of inherited properties.
    const definition = Object.create(null);
    for (const entry of this.entries) {
      const name = entry.name();
      if (name === "") throw new FieldError("A key has no name.");
      if (name in definition) throw new FieldError(`${name} is there twice.`);
      try {
        definition[name] = entry.read();
      } catch (error) {
        throw new FieldError(`${name}: ${error.message}`);
      }
    }
    if (this.entries.length === 0) throw new FieldError("At least one key is required: choose from those above.");
    return definition;
  }

  known(name) {
    return this.keys.find(({ key }) => key === name);
  }

  /** Show buttons for the keys that the definition does not contain. */
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

/** Make the row of a known key. */
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
  return minimum > 0 ? ` At least ${exactNumber(minimum)}.` : "";
}

/** Make an output that shows a typed number of bytes or milliseconds in larger units. */
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
  const choices = value === undefined || values.includes(value) ? values : [value, ...values];
  const options = choices.map((each) => h("option", { value: String(each), selected: each === value }, String(each)));
  const control = h("select", { id }, options);
  return { control, read: () => choices[control.selectedIndex] };
}

function makeBoolean(id, key, value) {
  return makeChoice(id, { values: [true, false] }, value);
}

function makeInteger(id, { minimum, maximum }, value) {
  const control = h("input", { id, type: "text", inputmode: "numeric", autocomplete: "off", value: value === undefined ? "" : String(value) });
  const read = () => {
    const number = readNumber(control.value);
    if (minimum !== null && number < minimum) throw new FieldError(`${exactNumber(minimum)} is the minimum.`);
    if (maximum !== null && number > maximum) throw new FieldError(`${exactNumber(maximum)} is the maximum.`);
    return number;
  };
  return { control, read };
}

function makeText(id, { type }, value) {
  const placeholder = { age: "7D", delays: "1s,10s,1m" }[type] ?? null;
  const control = h("input", { id, type: "text", autocomplete: "off", spellcheck: "false", placeholder, value: value === undefined ? "" : String(value) });
  return { control, read: () => control.value };
}

/** Make the row of an unknown key, whose name is typed as well. */
function makeUnknown(id, { key }, value) {
  const shared = { type: "text", autocomplete: "off", spellcheck: "false" };
  const name = h("input", { ...shared, id: `${id}-name`, "aria-label": "Key", placeholder: "key", value: key });
  const control = h("input", { ...shared, id, "aria-label": "Value as JSON", placeholder: "value as JSON", value: value === undefined ? "" : JSON.stringify(value) });
  const row = h("div", { class: "definition-row" }, name, h("span", { class: "definition-value" }, control), h("span", { class: "hint" }, "This broker does not know this key."));
  const read = () => {
    try {
      return JSON.parse(control.value);
    } catch {
      throw new FieldError('This is not JSON; strings need quotation marks: "text".');
    }
  };
  return { row, focus: key === "" ? name : control, name: () => name.value, read };
}
