/** Page with the list of jobs: those that run, and the last ones that have ended. */

import { address } from "../parts/address.js";
import { listColumns } from "../parts/columns.js";
import { h, patch } from "../parts/element.js";
import { ago, dateTime, nameText, number, span } from "../parts/format.js";
import { emptyState, heading, properties, section, valueTable } from "../parts/layout.js";
import { Table } from "../parts/table.js";
import { JOB_KINDS, jobBar, jobButton, jobState, jobTables } from "./job_kinds.js";

/** Running jobs whose progress is shown. */
const MEASURED = 20;

/** @returns {Promise<number|null>} number of ready messages of a job's queue; null if the user may not see it */
export async function readyFor(api, { vhost, queue }) {
  const { messages_ready: ready } = await api.get(["queues", vhost, queue], { columns: "messages_ready" }).catch(ignoreRefusal);
  return ready ?? null;
}

function ignoreRefusal(error) {
  if (error.name !== "ApiError" || error.isLoggedOut) throw error;
  return {};
}

function columns(context, ready) {
  return listColumns("jobs", {
    vhost: { isRedundant: () => context.vhost !== "" || context.vhosts.length < 2 },
    id: ({ vhost, id, kind }) => h("a", { href: address("jobs", vhost, id) }, JOB_KINDS[kind]?.title ?? kind),
    queue: ({ vhost, queue }) => h("a", { href: address("queues", vhost, queue) }, nameText(queue)),
    state: jobState,
    progress: (job) => (job.state === "running" ? jobBar(job, ready.get(job.id)) : null),
    action: (job) => jobButton(context, job),
    error: ({ error }) => error && h("span", { class: "sentence" }, error),
  });
}

function emptyList() {
  return emptyState("No job is running, and none has ended.", "The page of a queue begins jobs: “Return dead letters”, or “Replay messages” of a stream. They go on over restarts of the broker.");
}

export default {
  title: () => "Jobs",

  async mount(context) {
    if (context.vhosts.length === 0) await context.reloadVhosts();
    const { api } = context;
    const ready = new Map();
    const table = new Table({
      id: "jobs",
      columns: columns(context, ready),
      needs: ["id", "vhost", "queue", "kind", "state", "returned"],
      filterLabel: "Filter by queue",
      // Running jobs come first, then those that are paused, then those that have failed.
      sort: "state",
      reverse: true,
      rowKey: ({ id }) => id,
      load: async (query) => {
        const page = await api.get(context.vhost === "" ? ["jobs"] : ["jobs", context.vhost], query);
        const running = page.items.filter(({ state }) => state === "running").slice(0, MEASURED);
        await Promise.all(running.map(async (job) => ready.set(job.id, await readyFor(api, job))));
        return page;
      },
      empty: emptyList,
    });
    patch(context.root, heading("Jobs"), table.element);
    return () => table.refresh();
  },
};

export const job = {
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
