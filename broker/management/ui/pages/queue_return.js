/** Form that returns dead letters: a job of the broker, which goes on if the page is left. */

import { confirmAction } from "../parts/dialog.js";
import { h, patch } from "../parts/element.js";
import { Form } from "../parts/form.js";
import { countedNoun, exactNumber } from "../parts/format.js";
import { plainTable } from "../parts/layout.js";

const POLL_MS = 500;
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

function checkPositive(value) {
  return value === null || value > 0 ? null : "This must be more than 0.";
}

/** Form, and the progress of the job; `element` is created once. */
export class ReturnForm {
  /** @param {Object} context context of the page */
  constructor(context) {
    this.context = context;
    this.path = ["queues", context.params.vhost, context.params.name, "return-messages"];
    this.job = null;
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
      action: (values) => this.begin(values),
    });
    this.bar = h("progress", { "aria-label": "Messages returned" });
    this.words = h("span", { role: "status" });
    this.cancel = h("button", { type: "button", on: { click: () => this.stop() } }, "Cancel the job");
    this.progress = h("p", { class: "buttons" }, this.bar, this.words, this.cancel);
    this.progress.hidden = true;
    this.report = h("div");
    this.element = h("div", { own: true }, this.form.element, this.progress, this.report);
  }

  /** Show the job of this queue that is running, if any. Must be called when the form is opened. */
  async offer() {
    const { api, params } = this.context;
    if (this.job !== null) return;
    const jobs = await api.get(["jobs", params.vhost]).catch(() => []);
    const running = jobs.find(({ queue, state }) => queue === params.name && state === "running");
    if (running !== undefined && this.job === null) await this.watch(running).catch(() => {});
  }

  async begin(values) {
    const options = Object.fromEntries(Object.entries(values).filter(([, value]) => value !== "" && value !== null));
    const counted = await this.context.api.post(this.path, { ...options, dry_run: true });
    patch(this.report, report(counted));
    if (counted.returned === 0) return "There is nothing to return.";
    const isWanted = await confirmAction({
      title: "Return dead letters",
      name: this.context.params.name,
      text: `${countedNoun(counted.returned, "message")} will be returned; ${exactNumber(counted.left_count)} will be left.`,
      verb: "Return",
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
      patch(this.report, report(this.job));
      return `The job is ${this.job.state}: ${countedNoun(this.job.returned, "message")} returned.`;
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
    const { id, returned, error } = this.job;
    this.progress.hidden = false;
    if (total !== null) [this.bar.max, this.bar.value] = [total, returned];
    this.words.textContent = `Job ${id}: ${exactNumber(returned)} returned${error ? `; ${error}` : ""}`;
  }
}

/** Make the tables of where messages come from, and of those that are left. */
function report({ by_origin: origins, left }) {
  const number = { label: "Messages", numeric: true };
  const rows = origins.map((each, index) => ({ key: String(index), cells: [each.target, each.reason, exactNumber(each.count)] }));
  const lefts = left.map((each, index) => ({ key: String(index), cells: [each.problem, each.target, exactNumber(each.count)] }));
  return [
    rows.length > 0 ? plainTable("Dead letters by origin", ["Comes from", "Why", number], rows) : null,
    lefts.length > 0 ? plainTable("Left where they are", ["Left because", "Would go to", number], lefts) : null,
  ];
}
