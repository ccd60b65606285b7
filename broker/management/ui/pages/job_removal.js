/** Cancels a running job, or takes one that has ended off the list. */

import { confirmAction } from "../parts/dialog.js";
import { h } from "../parts/element.js";
import { JOB_KINDS } from "./job_kinds.js";

/**
 * Make the button that ends or removes a job.
 *
 * @param {Object} context context of the page
 * @param {Object} job job of the API
 * @param {function(): *} [removed] called after a job that had ended was removed
 * @returns {HTMLElement|null} null if the job belongs to somebody else
 */
export function jobButton({ api, user, notify, refresh }, { id, vhost, queue, kind, state, user: owner }, removed = refresh, isQuiet = true) {
  if (owner !== user.name && !user.may("administrator")) return null;
  const isRunning = state === "running";
  const end = async () => {
    const isDone = await confirmAction({
      title: isRunning ? "Cancel a job" : "Remove a job from the list",
      name: `Job ${id} of queue ${queue}`,
      text: isRunning ? `What it has ${JOB_KINDS[kind]?.done ?? "done"} stays so; the other messages stay in the queue.` : "It has ended. No message is changed.",
      isHarmless: true,
      verb: isRunning ? "Cancel the job" : "Remove",
      action: () => api.delete(["jobs", vhost, id]),
    });
    if (!isDone) return;
    notify(`Job ${id} has been ${isRunning ? "cancelled" : "removed"}.`);
    await (isRunning ? refresh() : removed());
  };
  return h("button", { type: "button", class: isQuiet ? "quiet" : null, "aria-label": `${isRunning ? "Cancel" : "Remove"} job ${id}`, on: { click: end } }, isRunning ? "Cancel …" : "Remove …");
}
