/** Questions that have to be answered first. The browser keeps the focus inside, closes on Esc and gives focus back. */

import { ConnectionLost } from "./api.js";
import { h } from "./element.js";
import { Notice } from "./notice.js";

let count = 0;

/** Close what is open, undone. */
export function closeDialogs() {
  for (const dialog of document.querySelectorAll("dialog[open]")) dialog.close();
}

/**
 * Show something in a dialog.
 *
 * @param {string} title of the dialog
 * @param {...*} content nodes; buttons with `value` close it inside a `<form method="dialog">`
 * @returns {HTMLDialogElement} open; `close()` closes it, and it removes itself then
 */
export function showDialog(title, ...content) {
  count += 1;
  const id = `dialog-title-${count}`;
  const dialog = h("dialog", { "aria-labelledby": id, own: true }, h("h2", { id }, title), content);
  const left = new AbortController();
  // What it asks belongs to the page that was there.
  addEventListener("hashchange", () => dialog.close(), { signal: left.signal });
  dialog.addEventListener("close", () => {
    left.abort();
    dialog.remove();
  });
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}

/**
 * Ask before something is done, do it, and stay open with the API's words if it is refused.
 *
 * @param {{title: string, name: string, text?: string, details?: Node[], isHarmless?: boolean, verb: string, action: function(): Promise}} question
 *   `title`: "Delete queue"; `name`: of the object, shown large as it is; `text`: what will be lost;
 *   `details`: more than a text, for which the dialog is wide; `isHarmless`: nothing is lost; `verb`: what the button
 *   says; `action`: does it
 * @returns {Promise<boolean>} whether it has been done
 */
export function confirmAction({ title, name, text = "", details = null, isHarmless = false, verb, action }) {
  return new Promise((resolve) => {
    const refused = new Notice("error");
    let isDone = false;
    const act = async () => {
      button.disabled = true;
      cancel.disabled = true;
      refused.clear();
      try {
        await action();
        isDone = true;
        dialog.close();
      } catch (error) {
        refused.show(error instanceof ConnectionLost ? `${error.message} Nothing is known of the outcome.` : error.message);
        button.disabled = false;
        cancel.disabled = false;
        button.focus();
      }
    };
    const button = h("button", { type: "button", class: isHarmless ? "main" : "danger", on: { click: act } }, verb);
    const cancel = h("button", { type: "button", autofocus: true, on: { click: () => dialog.close() } }, "Cancel");
    const dialog = showDialog(
      title,
      h("p", { class: "dialog-name" }, name),
      text === "" ? null : h("p", null, text),
      details,
      refused.element,
      h("p", { class: "buttons" }, button, cancel),
    );
    dialog.classList.toggle("wide", details !== null);
    dialog.addEventListener("close", () => resolve(isDone));
    // What is under way cannot be called off, and what comes of it has to be seen.
    dialog.addEventListener("cancel", (event) => button.disabled && event.preventDefault());
    (isHarmless ? button : cancel).focus();
  });
}
