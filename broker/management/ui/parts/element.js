/**
 * Creates DOM elements, and updates them in place on a refresh.
 *
 * Pages build their content with h() and pass it to patch(), which changes the existing content as little as possible.
 * Existing nodes are kept, and with them focus, scroll position, selection and typed text.
 * Text is always inserted as text, never as markup.
 */

const SVG = "http://www.w3.org/2000/svg";
/** Data of an element for patch(): its key, its listeners, and whether it manages its own content. */
const elementData = new WeakMap();
/** Comment nodes that represent elements which are already in the document. */
const placeholders = new WeakMap();
/** Properties that only h() sets, so that a refresh does not overwrite user input. */
const TYPED = new Set(["value", "checked", "selected", "open"]);
/** Attributes that patch() does not copy: `open` belongs to the user, `style` is set through properties. */
const NOT_COPIED = new Set(["open", "style"]);
const ADDRESS = /^(#|api\/|\?|$)/;

/**
 * Create an element.
 *
 * @param {string} tag tag name
 * @param {Object} [props] attributes; null, undefined and false omit an attribute, true sets it empty. Also:
 *   `on: {click: listener}`; `key`: identifies the element among its siblings for patch();
 *   `style: {"--share": "40%"}`: CSS properties; `own: true`: patch() does not change its content.
 *   `href` is an address of the UI (#/…) or of the API (api/…).
 * @param {...*} children nodes, strings, numbers, or lists of these; null, undefined and false are omitted
 * @returns {HTMLElement}
 */
export function h(tag, props, ...children) {
  return fill(document.createElement(tag), props, children);
}

/**
 * Create an SVG element, like h().
 *
 * @returns {SVGElement}
 */
export function s(tag, props, ...children) {
  return fill(document.createElementNS(SVG, tag), props, children);
}

function fill(element, props, children) {
  const { on = {}, key, style = {}, own = false, ...attributes } = props ?? {};
  elementData.set(element, { key, own, on: {} });
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
  if (name === "href" && !ADDRESS.test(value ?? "")) throw new TypeError(`not an address of the UI or the API: ${value}`);
  if (TYPED.has(name) && name in element) {
    if (value !== undefined && value !== null) element[name] = value;
  } else if (value !== null && value !== undefined && value !== false) {
    element.setAttribute(name, value === true ? "" : String(value));
  }
}

/** Set event listeners. One permanent listener per event calls the listener of the latest version. */
function listen(element, on) {
  const known = elementData.get(element).on;
  for (const event of Object.keys(on)) {
    if (!(event in known)) {
      element.addEventListener(event, (happened) => elementData.get(element).on[event]?.call(element, happened));
    }
  }
  for (const event of Object.keys(known)) known[event] = null;
  Object.assign(known, on);
}

function append(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? placeholderFor(child) : String(child));
  }
}

function placeholderFor(node) {
  if (!node.isConnected) return node;
  const placeholder = document.createComment("");
  placeholders.set(placeholder, node);
  return placeholder;
}

/**
 * Replace the children of an element, and reuse existing nodes.
 *
 * A new child matches an existing one if they are the same node, or have the same tag and key. Elements with
 * `own: true` (tables, charts, forms) match only as the same node.
 *
 * @param {Element} element parent to change
 * @param {...*} children as in h(); elements that are already in the document are kept unchanged
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
    const key = elementData.get(child)?.key;
    if (key !== undefined) keyed.set(key, child);
  }
  const matches = new Map();
  const taken = new Set(resolved);
  for (const node of resolved) {
    const match = keyed.get(elementData.get(node)?.key);
    if (match !== undefined && match !== node && !taken.has(match) && fits(match, node)) {
      matches.set(node, match);
      taken.add(match);
    }
  }
  for (const child of [...parent.childNodes]) {
    if (elementData.get(child)?.key !== undefined && !taken.has(child)) child.remove();
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

/** Insert or update one child at the cursor and return the new cursor. */
function place(parent, cursor, node, match, taken) {
  if (cursor === node) return cursor.nextSibling;
  if (match !== undefined) {
    update(match, node);
    if (cursor === match) return cursor.nextSibling;
    parent.insertBefore(match, cursor);
    return cursor;
  }
  const isFree = cursor !== null && !taken.has(cursor) && elementData.get(cursor)?.key === undefined;
  if (isFree && elementData.get(node)?.key === undefined && !node.isConnected && fits(cursor, node)) {
    update(cursor, node);
    return cursor.nextSibling;
  }
  parent.insertBefore(resolvePlaceholders(node), cursor);
  return cursor;
}

function fits(there, wanted) {
  if (there.nodeType !== wanted.nodeType) return false;
  if (there.nodeType !== Node.ELEMENT_NODE) return true;
  return there.tagName === wanted.tagName && !elementData.get(there)?.own && !elementData.get(wanted)?.own;
}

/** Replace the placeholders in a new node by their elements. */
function resolvePlaceholders(node) {
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
    if (!wanted.hasAttribute(name) && !NOT_COPIED.has(name)) there.removeAttribute(name);
  }
  for (const { name, value } of wanted.attributes) {
    if (there.getAttribute(name) !== value && !NOT_COPIED.has(name)) there.setAttribute(name, value);
  }
  if (there.style.cssText !== wanted.style.cssText) there.style.cssText = wanted.style.cssText;
  const [old, fresh] = [elementData.get(there), elementData.get(wanted)];
  if (old !== undefined && fresh !== undefined) {
    old.key = fresh.key;
    listen(there, fresh.on);
  }
  patchChildren(there, [...wanted.childNodes]);
}
