/** Page of a job: how far it is, what it has done, and a button that ends it. */

import { address } from "../parts/address.js";
import { h, patch } from "../parts/element.js";
import { ago, dateTime, nameText, number, span } from "../parts/format.js";
import { heading, properties, section, valueTable } from "../parts/layout.js";
import { JOB_KINDS, jobBar, jobButton, jobState, jobTables } from "./job_kinds.js";
import { readyFor } from "./jobs.js";

export default {
  title: ({ name }) => `Job ${name}`,

  mount(context) {
    const { api, params, root } = context;
    patch(root, heading(`Job ${params.name}`));
    return async () => {
      const job = await api.get(["jobs", params.vhost, params.name]);
      const ready = job.state === "running" ? await readyFor(api, job) : null;
      const words = JOB_KINDS[job.kind];
      const tables = jobTables(job, words).filter((each) => each !== null);
      patch(
        root,
        heading([`${words.title} `, h("small", null, `job ${job.id}`)], jobButton(context, job, () => context.navigate(address("jobs")), false)),
        job.error ? h("p", { class: `notice ${job.state === "failed" ? "error" : "warning"}`, key: "error" }, job.error) : null,
        facts(job, words, ready),
        tables.length > 0 ? section("Messages", tables) : null,
      );
    };
  },
};

function facts(job, words, ready) {
  const { vhost, queue, created, finished, options } = job;
  return properties([
    ["Queue", [h("a", { href: address("queues", vhost, queue) }, nameText(queue)), h("span", { class: "muted" }, ` in virtual host ${vhost}`)]],
    ["State", jobState(job)],
    ["Progress", job.state === "running" ? jobBar(job, ready) : null, "Messages that it has looked at, of those that there are"],
    [words.done.replace(/^./, (letter) => letter.toUpperCase()), [number(job.returned), " messages"]],
    ["Left where they are", job.left_count > 0 ? [number(job.left_count), " messages"] : null],
    ["Offsets", job.kind === "replay" ? [number(job.first_offset), " to ", number(job.end_offset), "; next ", number(job.next_offset)] : null],
    ["Begun", [ago(created), ` by user ${job.user}`]],
    ["Ended", finished ? `${dateTime(finished)}, after ${span((finished - created) / 1000)}` : null],
    ["Options", options && Object.keys(options).length > 0 ? valueTable(options) : null],
  ]);
}
