/**
 * Elements, and how a refresh changes them in place.
 *
 * Pages build what they want to show anew with h() and hand it to patch(), which changes what is there as little as
 * possible: nodes stay the same, so focus, scroll position, selected text and what is being typed stay too.
 * Text is always set as text; there is no way to put markup in.
 */

const SVG = "http://www.w3.org/2000/svg";
/** What patch() has to know of an element: its key, its listeners, whether it looks after its own content. */
const facts = new WeakMap();
/** Comments that stand for elements which are in the document already. */
const placeholders = new WeakMap();
/** Set as properties, by h() only: what the user has typed or chosen since is the user's. */
const TYPED = new Set(["value", "checked", "selected", "open"]);
/** Attributes that patch() does not copy: the user's, and one that may only be set by way of its properties. */
const APART = new Set(["open", "style"]);
const ADDRESS = /^(#|api\/|\?|$)/;

/**
 * Make an element.
 *
 * @param {string} tag its name
 * @param {Object} [props] attributes; null, undefined and false leave one out, true sets it empty. Besides:
 *   `on: {click: listener}`; `key`: what the element is known by among its siblings when they are patched;
 *   `style: {"--share": "40%"}`: CSS properties; `own: true`: patch() never touches its content.
 *   `href` is an address of the UI (#/…) or of the API (api/…).
 * @param {...*} children nodes, texts, numbers, or lists of these; null, undefined and false are left out
 * @returns {HTMLElement}
 */
export function h(tag, props, ...children) {
  return fill(document.createElement(tag), props, children);
}

/**
 * Make an SVG element; like h().
 *
 * @returns {SVGElement}
 */
export function s(tag, props, ...children) {
  return fill(document.createElementNS(SVG, tag), props, children);
}

function fill(element, props, children) {
  const { on = {}, key, style = {}, own = false, ...attributes } = props ?? {};
  facts.set(element, { key, own, on: {} });
  append(element, children);
  for (const [name, value] of Object.entries(attributes)) {
    setAttribute(element, name, value);
  }
  for (const [name, value] of Object.entries(style)) {
    element.style.setProperty(name, value);
  }
  listen(element, on);
  return element;
}

function setAttribute(element, name, value) {
  if (name.startsWith("on")) throw new TypeError(`listeners go into "on": ${name}`);
  if (name === "href" && !ADDRESS.test(value ?? "")) throw new TypeError(`not an address of ours: ${value}`);
  if (TYPED.has(name) && name in element) {
    if (value !== undefined && value !== null) element[name] = value;
  } else if (value !== null && value !== undefined && value !== false) {
    element.setAttribute(name, value === true ? "" : String(value));
  }
}

/** Each event of an element has one listener for good, which calls whatever the newest version wants called. */
function listen(element, on) {
  const known = facts.get(element).on;
  for (const event of Object.keys(on)) {
    if (!(event in known)) {
      element.addEventListener(event, (happened) => facts.get(element).on[event]?.call(element, happened));
    }
  }
  for (const event of Object.keys(known)) known[event] = null;
  Object.assign(known, on);
}

function append(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? standIn(child) : String(child));
  }
}

function standIn(node) {
  if (!node.isConnected) return node;
  const placeholder = document.createComment("");
  placeholders.set(placeholder, node);
  return placeholder;
}

/**
 * Let an element have these children, changing those that it has.
 *
 * A child matches one that is there if both are the same node, or have the same tag and key. Elements made with
 * `own: true` (tables, charts, forms) are matched as the same node only.
 *
 * @param {Element} element what to change
 * @param {...*} children as in h(); may contain elements that are in the document already, which stay as they are
 */
export function patch(element, ...children) {
  const wanted = document.createElement("template").content;
  append(wanted, children);
  const focused = document.activeElement;
  patchChildren(element, [...wanted.childNodes]);
  if (focused !== document.activeElement && focused?.isConnected) focused.focus({ preventScroll: true });
}

function patchChildren(parent, wanted) {
  const resolved = wanted.map((node) => placeholders.get(node) ?? node);
  const keyed = new Map();
  for (const child of parent.children) {
    const key = facts.get(child)?.key;
    if (key !== undefined) keyed.set(key, child);
  }
  const matches = new Map();
  const taken = new Set(resolved);
  for (const node of resolved) {
    const match = keyed.get(facts.get(node)?.key);
    if (match !== undefined && match !== node && !taken.has(match) && fits(match, node)) {
      matches.set(node, match);
      taken.add(match);
    }
  }
  for (const child of [...parent.childNodes]) {
    if (facts.get(child)?.key !== undefined && !taken.has(child)) child.remove();
  }
  let cursor = parent.firstChild;
  for (const node of resolved) {
    cursor = place(parent, cursor, node, matches.get(node), taken);
  }
  while (cursor) {
    const next = cursor.nextSibling;
    cursor.remove();
    cursor = next;
  }
}

/** Bring one child to where the cursor is; return where the cursor is then. */
function place(parent, cursor, node, match, taken) {
  if (cursor === node) return cursor.nextSibling;
  if (match !== undefined) {
    update(match, node);
    if (cursor === match) return cursor.nextSibling;
    parent.insertBefore(match, cursor);
    return cursor;
  }
  const isFree = cursor !== null && !taken.has(cursor) && facts.get(cursor)?.key === undefined;
  if (isFree && facts.get(node)?.key === undefined && !node.isConnected && fits(cursor, node)) {
    update(cursor, node);
    return cursor.nextSibling;
  }
  parent.insertBefore(settle(node), cursor);
  return cursor;
}

function fits(there, wanted) {
  if (there.nodeType !== wanted.nodeType) return false;
  if (there.nodeType !== Node.ELEMENT_NODE) return true;
  return there.tagName === wanted.tagName && !facts.get(there)?.own && !facts.get(wanted)?.own;
}

/** New nodes go in with the elements that their placeholders stand for. */
function settle(node) {
  if (node.nodeType !== Node.ELEMENT_NODE) return node;
  const walker = document.createTreeWalker(node, NodeFilter.SHOW_COMMENT);
  const found = [];
  while (walker.nextNode()) {
    if (placeholders.has(walker.currentNode)) found.push(walker.currentNode);
  }
  for (const placeholder of found) placeholder.replaceWith(placeholders.get(placeholder));
  return node;
}

function update(there, wanted) {
  if (there.nodeType !== Node.ELEMENT_NODE) {
    if (there.data !== wanted.data) there.data = wanted.data;
    return;
  }
  for (const { name } of [...there.attributes]) {
    if (!wanted.hasAttribute(name) && !APART.has(name)) there.removeAttribute(name);
  }
  for (const { name, value } of wanted.attributes) {
    if (there.getAttribute(name) !== value && !APART.has(name)) there.setAttribute(name, value);
  }
  if (there.style.cssText !== wanted.style.cssText) there.style.cssText = wanted.style.cssText;
  const [old, fresh] = [facts.get(there), facts.get(wanted)];
  if (old !== undefined && fresh !== undefined) {
    old.key = fresh.key;
    listen(there, fresh.on);
  }
  patchChildren(there, [...wanted.childNodes]);
}
