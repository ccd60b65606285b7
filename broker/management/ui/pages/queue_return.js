/** Form that returns dead letters: a job of the broker, which goes on if the page is left. */

import { h } from "../parts/element.js";
import { Form } from "../parts/form.js";
import { JOB_KINDS } from "./job_kinds.js";
import { JobProgress, checkPositive } from "./queue_job.js";

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
