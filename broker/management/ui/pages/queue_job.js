/** Shows the progress of a job of the broker, which goes on if the page is left. */

import { address } from "../parts/address.js";
import { confirmAction } from "../parts/dialog.js";
import { h, patch } from "../parts/element.js";
import { countedNoun, exactNumber } from "../parts/format.js";
import { jobTables } from "./job_kinds.js";

const POLL_MS = 500;

/** Check a number that may be left out. */
export function checkPositive(value) {
  return value === null || value > 0 ? null : "This must be more than 0.";
}

/** Begins a job and shows it; `element` is created once. */
export class JobProgress {
  /**
   * @param {Object} context context of the page
   * @param {import("./job_kinds.js").JobKind} words
   */
  constructor(context, words) {
    this.context = context;
    this.words = words;
    this.path = ["queues", context.params.vhost, context.params.name, words.resource];
    this.job = null;
    this.bar = h("progress", { "aria-label": `Messages ${words.done}` });
    this.status = h("span", { role: "status" });
    this.cancel = h("button", { type: "button", on: { click: () => this.stop() } }, "Cancel the job");
    this.progress = h("p", { class: "buttons" }, this.bar, this.status, this.cancel);
    this.progress.hidden = true;
    this.report = h("div");
    this.element = h("div", { own: true }, this.progress, this.report);
  }

  /** Show the job of this queue that is running, if any. Must be called when the form is opened. */
  async offer() {
    const { api, params } = this.context;
    if (this.job !== null) return;
    const jobs = await api.get(["jobs", params.vhost]).catch(() => []);
    const isOurs = ({ queue, kind, state }) => queue === params.name && kind === this.words.kind && state === "running";
    const running = jobs.find(isOurs);
    if (running !== undefined && this.job === null) await this.watch(running).catch(() => {});
  }

  /** Count the messages, ask, and begin the job; return what is to be said. */
  async begin(values) {
    const { title, verb, done } = this.words;
    const options = Object.fromEntries(Object.entries(values).filter(([, value]) => value !== "" && value !== null));
    const counted = await this.context.api.post(this.path, { ...options, dry_run: true });
    patch(this.report, jobTables(counted, this.words));
    if (counted.returned === 0) return `There is nothing to ${verb.toLowerCase()}.`;
    const isWanted = await confirmAction({
      title,
      name: this.context.params.name,
      text: `${countedNoun(counted.returned, "message")} will be ${done}; ${exactNumber(counted.left_count)} will be left.`,
      verb,
      action: async () => {},
    });
    return isWanted ? this.watch(await this.context.api.post(this.path, options), counted.returned) : "";
  }

  /** Show the progress of a job until it has ended. */
  async watch(job, total = null) {
    const { api, params, refresh } = this.context;
    this.job = job;
    this.cancel.hidden = false;
    try {
      while (this.job.state === "running") {
        this.show(total);
        await new Promise((resolve) => setTimeout(resolve, POLL_MS));
        this.job = await api.get(["jobs", params.vhost, this.job.id]);
      }
      this.show(total);
      patch(this.report, jobTables(this.job, this.words));
      return `The job is ${this.job.state}: ${countedNoun(this.job.returned, "message")} ${this.words.done}.`;
    } finally {
      this.cancel.hidden = true;
      this.job = null;
      refresh();
    }
  }

  async stop() {
    const { api, params } = this.context;
    if (this.job !== null) await api.delete(["jobs", params.vhost, this.job.id]).catch(() => {});
  }

  show(total) {
    const { id, vhost, returned, error } = this.job;
    this.progress.hidden = false;
    if (total !== null) [this.bar.max, this.bar.value] = [total, returned];
    const words = `: ${exactNumber(returned)} ${this.words.done}${error ? `; ${error}` : ""}`;
    patch(this.status, h("a", { href: address("jobs", vhost, id) }, `Job ${id}`), words);
  }
}
