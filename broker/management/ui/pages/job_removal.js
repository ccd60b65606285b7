/** Cancels a running job, resumes one that is paused, or takes one that has ended off the list. */

import { confirmAction } from "../parts/dialog.js";
import { h } from "../parts/element.js";
import { actions } from "../parts/layout.js";
import { JOB_KINDS } from "./job_kinds.js";

/**
 * Make the button that ends or removes a job, and for one that is paused another that resumes it.
 *
 * @param {Object} context context of the page
 * @param {Object} job job of the API
 * @param {function(): *} [removed] called after a job that had ended was removed
 * @returns {HTMLElement|null} null if the job belongs to somebody else
 */
export function jobButton({ api, user, notify, refresh }, { id, vhost, queue, kind, state, user: owner }, removed = refresh, isQuiet = true) {
  if (owner !== user.name && !user.may("administrator")) return null;
  const isRunning = state === "running" || state === "paused";
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
  const resume = async () => {
    const isDone = await confirmAction({
      title: "Resume a job",
      name: `Job ${id} of queue ${queue}`,
      text: "It was running whenever the broker ended without a proper stop, three times in a row, and may be the cause.",
      isHarmless: true,
      verb: "Resume the job",
      action: () => api.post(["jobs", vhost, id, "resume"]),
    });
    if (!isDone) return;
    notify(`Job ${id} has been resumed.`);
    await refresh();
  };
  const look = isQuiet ? "quiet" : null;
  const button = h("button", { type: "button", class: look, "aria-label": `${isRunning ? "Cancel" : "Remove"} job ${id}`, on: { click: end } }, isRunning ? "Cancel …" : "Remove …");
  if (state !== "paused") return button;
  const another = h("button", { type: "button", class: look, "aria-label": `Resume job ${id}`, on: { click: resume } }, "Resume …");
  return isQuiet ? actions(another, button) : h("span", { class: "buttons" }, another, button);
}
