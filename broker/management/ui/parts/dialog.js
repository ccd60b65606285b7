/** Modal dialogs. The browser keeps the focus inside, closes them on Esc and restores the focus. */

import { ConnectionLost } from "./api.js";
import { h } from "./element.js";
import { Notice } from "./notice.js";

let count = 0;

/** Close all dialogs without performing their actions. */
export function closeDialogs() {
  for (const dialog of document.querySelectorAll("dialog[open]")) dialog.close();
}

/**
 * Open a dialog.
 *
 * @param {string} title of the dialog
 * @param {...*} content nodes; buttons with `value` inside a `<form method="dialog">` close the dialog
 * @returns {HTMLDialogElement} the open dialog; it removes itself when it is closed
 */
export function showDialog(title, ...content) {
  count += 1;
  const id = `dialog-title-${count}`;
  const dialog = h("dialog", { "aria-labelledby": id, own: true }, h("h2", { id }, title), content);
  const left = new AbortController();
  // The dialog belongs to the page that opened it.
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
 * Ask for confirmation and perform an action. If the API refuses, the dialog stays open and shows the reason.
 *
 * @param {{title: string, name: string, text?: string, details?: Node[], isHarmless?: boolean, verb: string, action: function(): Promise}} question
 *   `title`: for example "Delete queue"; `name`: name of the object; `text`: consequences of the action;
 *   `details`: additional nodes, which make the dialog wide; `isHarmless`: the action loses no data; `verb`: label of
 *   the button; `action`: performs the action
 * @returns {Promise<boolean>} whether the action was performed
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
        refused.show(error instanceof ConnectionLost ? `${error.message} The outcome is unknown.` : error.message);
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
    // A running action cannot be cancelled, and its result must be shown.
    dialog.addEventListener("cancel", (event) => button.disabled && event.preventDefault());
    (isHarmless ? button : cancel).focus();
  });
}
