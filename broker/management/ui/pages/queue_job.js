/** Shows the progress of a job of the broker, which goes on if the page is left. */

import { address } from "../parts/address.js";
import { confirmAction } from "../parts/dialog.js";
import { h, patch } from "../parts/element.js";
import { Form } from "../parts/form.js";
import { countedNoun, exactNumber } from "../parts/format.js";
import { JOB_KINDS, jobTables } from "./job_kinds.js";

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

const TARGETS = [
  { value: "into_exchange", label: "an exchange: every bound queue gets them, but not the stream" },
  { value: "into_queue", label: "a queue" },
];
const FROM_HINT = "first, last, an offset, a time such as 2026-01-31T12:00:00Z, or an age such as 90m or 7D.";
const TO_HINT = "This message is not replayed. Empty for all that are there now.";
const FILTER_HINT =
  "One condition per line; all must match: routing_key=…, exchange=…, header.NAME=…, property.NAME=…, body.PATH=…, " +
  "older_than=1h, newer_than=30s.";

/** Form, and the progress of the job; `element` is created once. */
export class ReplayForm {
  /** @param {Object} context context of the page */
  constructor(context) {
    this.job = new JobProgress(context, JOB_KINDS.replay);
    this.form = new Form({
      fields: [
        { name: "target", label: "Messages go into", kind: "select", options: TARGETS, value: "into_exchange" },
        { name: "name", label: "Its name", required: true, hint: "In the same virtual host." },
        { name: "from", label: "From", hint: FROM_HINT },
        { name: "to", label: "Up to", hint: TO_HINT },
        { name: "limit", label: "Messages", kind: "number", hint: "Empty for all.", check: checkPositive },
        { name: "rate", label: "Messages per second", kind: "number", hint: "Empty for no limit.", check: checkPositive },
        { name: "filter", label: "Only with", kind: "textarea", rows: 2, wide: true, hint: FILTER_HINT },
      ],
      submit: "Replay …",
      keep: true,
      action: ({ target, name, ...options }) => this.job.begin({ ...options, [target]: name }),
    });
    this.element = h("div", { own: true }, this.form.element, this.job.element);
  }
}

const VIA = [
  { value: "queue", label: "the queue where it was dead-lettered" },
  { value: "exchange", label: "its exchange: every bound queue gets it again" },
];
const DEATHS = [
  { value: "first", label: "where it was dead-lettered first" },
  { value: "last", label: "where it was dead-lettered last" },
];
const HINT =
  "One condition per line; all must match: queue=…, reason=…, routing_key=…, header.NAME=…, property.NAME=…, body.PATH=…, " +
  "older_than=1h, newer_than=30s.";

/** Form, and the progress of the job; `element` is created once. */
export class ReturnForm {
  /** @param {Object} context context of the page */
  constructor(context) {
    this.job = new JobProgress(context, JOB_KINDS.return);
    this.form = new Form({
      fields: [
        { name: "via", label: "Each message goes to", kind: "select", options: VIA, value: "queue" },
        { name: "death", label: "It comes from", kind: "select", options: DEATHS, value: "first" },
        { name: "limit", label: "Messages", kind: "number", hint: "Empty for all that are ready now.", check: checkPositive },
        { name: "rate", label: "Messages per second", kind: "number", hint: "Empty for no limit.", check: checkPositive },
        { name: "remove_death", label: "Remove x-death", kind: "checkbox", hint: "The headers of dead-lettering." },
        { name: "filter", label: "Only with", kind: "textarea", rows: 2, wide: true, hint: HINT },
      ],
      submit: "Return …",
      keep: true,
      action: (values) => this.job.begin(values),
    });
    this.element = h("div", { own: true }, this.form.element, this.job.element);
  }
}
