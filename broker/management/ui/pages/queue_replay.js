/** Form that replays a stream: a job of the broker, which goes on if the page is left. */

import { h } from "../parts/element.js";
import { Form } from "../parts/form.js";
import { JOB_KINDS } from "./job_kinds.js";
import { JobProgress, checkPositive } from "./queue_job.js";

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
