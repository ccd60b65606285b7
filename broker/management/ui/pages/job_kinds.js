/** What is said about the kinds of jobs, how far one is, and what it has done. */

import { badge } from "../parts/badge.js";
import { confirmAction } from "../parts/dialog.js";
import { h } from "../parts/element.js";
import { exactNumber, isNumber } from "../parts/format.js";
import { actions, plainTable } from "../parts/layout.js";

/**
 * Words for a kind of job.
 *
 * @typedef {Object} JobKind
 * @property {string} kind its name in the API
 * @property {string} [resource] resource of a queue that begins it
 * @property {string} done what becomes of its messages
 * @property {string} title of the question before it begins, and of the job
 * @property {string} [verb] label of the button that begins it
 * @property {string[]} origins caption and headings of the table of where messages come from or go
 */

/** @type {Object<string, JobKind>} by kind */
export const JOB_KINDS = {
  return: {
    kind: "return",
    resource: "return-messages",
    done: "returned",
    title: "Return dead letters",
    verb: "Return",
    origins: ["Dead letters by origin", "Comes from", "Why"],
  },
  replay: {
    kind: "replay",
    resource: "replay",
    done: "replayed",
    title: "Replay messages",
    verb: "Replay",
    origins: ["Messages by routing key", "Goes to", "With"],
  },
  restore: {
    kind: "restore",
    resource: "restore",
    done: "restored",
    title: "Restore a queue",
    verb: "Restore",
    origins: ["Messages by target", "Goes to", "Why"],
  },
  move: { kind: "move", done: "moved", title: "Move messages", origins: ["Messages by target", "Goes to", "Why"] },
};

const STATES = {
  running: ["good", "goes on, also over restarts of the broker"],
  paused: ["bad", "waits until it is resumed"],
  completed: ["plain", "has looked at all messages"],
  cancelled: ["plain", "was cancelled"],
  failed: ["bad", "has ended before its time"],
};

/** Make the badge of a job's state. @param {Object} job job of the API @returns {HTMLElement} */
export function jobState({ state, error }) {
  const [kind, title] = STATES[state] ?? ["plain", state];
  return state === "running" && error ? badge("waiting", error, "warning") : badge(state, error ?? title, kind);
}

/**
 * Make the bar that shows how far a job is.
 *
 * @param {Object} job job of the API
 * @param {number|null} ready ready messages of its queue; null if they are not known
 * @returns {HTMLElement|null} null if it is not known how many messages there are
 */
export function jobBar(job, ready) {
  const [done, total] = extent(job, ready);
  if (!isNumber(total) || total <= 0) return null;
  const words = `${exactNumber(done)} of ${exactNumber(total)}`;
  return h("span", { class: "fill" }, h("progress", { value: done, max: total, "aria-label": `Progress: ${words}` }), h("span", { class: "fill-text" }, words));
}

/** Return how many messages a job has looked at, and how many there are. */
function extent(job, ready) {
  if (job.kind === "replay") return [job.next_offset - job.first_offset, job.end_offset - job.first_offset];
  if (job.kind === "restore") return [job.scanned, isNumber(job.options?.limit) ? Math.min(job.options.limit, job.total ?? Infinity) : job.total];
  if (isNumber(job.options?.limit)) return [job.returned, job.options.limit];
  if (!isNumber(ready)) return [0, null];
  // What it has left is ready still. After a restart it looks at this again.
  const done = Math.max(job.scanned, job.returned);
  return [done, Math.max(done, job.returned + ready)];
}

/**
 * Make the tables of where messages come from or go, and of those that are left.
 *
 * @param {Object} job job of the API, or what a dry run has counted
 * @param {JobKind} words
 * @returns {Array<HTMLElement|null>}
 */
export function jobTables({ by_origin: origins, left }, words) {
  const number = { label: "Messages", numeric: true };
  const [caption, ...headings] = words.origins;
  // Users who may not read the queue are shown neither.
  const rows = (origins ?? []).map((each, index) => ({ key: String(index), cells: [each.target, each.reason, exactNumber(each.count)] }));
  const lefts = (left ?? []).map((each, index) => ({ key: String(index), cells: [each.problem, each.target, exactNumber(each.count)] }));
  return [
    rows.length > 0 ? plainTable(caption, [...headings, number], rows) : null,
    lefts.length > 0 ? plainTable("Left where they are", ["Left because", "Would go to", number], lefts) : null,
  ];
}

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
