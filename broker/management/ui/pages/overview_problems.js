/** What is wrong: no new backup, full queues, lost messages, jobs that have failed or wait. The overview begins with it. */

import { address, exchangeAddress } from "../parts/address.js";
import { h } from "../parts/element.js";
import { countedNoun, nameText, number, shortRate, span } from "../parts/format.js";
import { nearestFill } from "./queue_features.js";

const DAY = 86_400;
/** Queues that are asked for, fullest first. More than these are not counted. */
const FULLEST = 100;
const NEARLY = 80;
/** Examples of each kind. */
const SHOWN = 3;

/**
 * Load what is wrong.
 *
 * @param {import("../parts/api.js").Api} api
 * @param {boolean} isMonitor whether the user may see backups
 * @returns {Promise<Object>} what problemsSection() takes
 */
export async function loadProblems(api, isMonitor) {
  const fullest = { page: 1, page_size: FULLEST, sort: "fill", sort_reverse: "true", columns: "name,vhost,type,fill" };
  const [queues, losses, jobs, backups] = await Promise.all([
    api.get(["queues"], fullest),
    api.get(["losses"], { page: 1, page_size: SHOWN, age: DAY }),
    api.get(["jobs"], { columns: "id,vhost,queue,state,error" }),
    isMonitor ? api.get(["backups"]) : null,
  ]);
  return { queues: queues.items, losses, jobs, backups };
}

/**
 * Make the section.
 *
 * @param {Object} found result of loadProblems()
 * @param {boolean} isCounted whether the broker has statistics, and so says how full queues are
 * @returns {HTMLElement}
 */
export function problemsSection({ queues, losses, jobs, backups }, isCounted) {
  // The limits of a stream are no reason to worry: removing what is old is what they are for.
  const bounded = queues.filter(({ type, fill }) => type !== "stream" && fill);
  const full = bounded.filter(({ fill }) => fill.percent >= 100);
  const nearly = bounded.filter(({ fill }) => fill.percent >= NEARLY && fill.percent < 100);
  const problems = [staleBackup(backups), full.length > 0 ? fullQueues(full) : null, lostMessages(losses), nearly.length > 0 ? nearlyFull(nearly) : null, stuckJobs(jobs)];
  const shown = problems.filter((each) => each !== null);
  const fine = h("p", { class: "muted", key: "fine" }, `${isCounted ? "No queue is full, and no" : "No"} message was lost in the last 24 hours.`);
  return h("section", { class: "problems", key: "problems", "aria-label": "Problems" }, shown.length > 0 ? shown : fine);
}

function fullQueues(full) {
  const title = full.length < FULLEST ? `${countedNoun(full.length, "queue")} ${full.length === 1 ? "is" : "are"} full` : `${FULLEST} or more queues are full`;
  return problem("bad", title, full.map(filled), more(full.length, link("All queues by fill", "queues?sort=fill")));
}

function nearlyFull(nearly) {
  const title = `${countedNoun(nearly.length, "queue")} above ${NEARLY}%`;
  return problem("warning", title, nearly.map(filled), more(nearly.length, link("All queues by fill", "queues?sort=fill")));
}

function filled({ vhost, name, fill }) {
  return [[h("a", { href: address("queues", vhost, name) }, nameText(name)), inVhost(vhost)], nearestFill(fill), h("span", { class: "wide-only" }, fill.percent >= 100 ? fill.at_limit : null)];
}

function lostMessages({ totals, items }) {
  const { lost, refused_told: told } = totals.window;
  const where = link("All losses by reason and time", "losses");
  if (lost === 0) return told > 0 ? problem("warning", `${countedNoun(told, "message")} refused in the last 24 hours`, [], h("p", null, "Their publishers were told. ", where)) : null;
  const rows = items.filter(({ window }) => window.lost > 0).map((row) => [subject(row), h("strong", { class: "bad" }, number(row.window.lost)), now(row)]);
  const refused = told > 0 ? h("p", null, `${countedNoun(told, "other")} ${told === 1 ? "was" : "were"} refused, and the publishers told.`) : null;
  return problem("bad", `${countedNoun(lost, "message")} lost in the last 24 hours`, rows, [h("p", null, where), refused]);
}

function subject({ kind, state, vhost, name }) {
  if (name === null) return `other ${kind}s that were deleted`;
  const words = nameText(name || "(AMQP default)");
  if (state === "deleted") return [words, ` (${kind}, deleted)`, inVhost(vhost)];
  return [h("a", { href: kind === "queue" ? address("queues", vhost, name) : exchangeAddress(vhost, name) }, words), kind === "queue" ? null : ` (${kind})`, inVhost(vhost)];
}

/** Say whether messages are being lost just now. */
function now({ lost_details: details }) {
  return details?.rate > 0 ? `${shortRate(details.rate)} now` : null;
}

function stuckJobs(jobs) {
  const stuck = jobs.filter(({ state, error }) => ["failed", "paused"].includes(state) || (state === "running" && error));
  if (stuck.length === 0) return null;
  const rows = stuck.map(({ id, vhost, queue, error }) => [[h("a", { href: address("jobs", vhost, id) }, `Job ${id}`), ` of queue ${queue}`], h("span", { class: "prose" }, error)]);
  return problem("warning", `${countedNoun(stuck.length, "job")} failed or waiting`, rows, more(stuck.length, link("Jobs", "jobs")));
}

function staleBackup(backups) {
  if (!backups?.late && !backups?.error) return null;
  const title = backups.late ? `The last backup is ${span(backups.age)} old` : "The last backup has failed";
  const rows = backups.error ? [[h("span", { class: "prose" }, backups.error)]] : [];
  return problem(backups.late ? "bad" : "warning", title, rows, h("p", null, link("Backups", "backups")));
}

function inVhost(vhost) {
  return vhost === "/" ? null : h("span", { class: "muted" }, ` in ${vhost}`);
}

function link(words, path) {
  return h("a", { href: `#/${path}` }, words);
}

/** Say how many examples are left out. */
function more(count, where) {
  return h("p", null, count > SHOWN ? `and ${countedNoun(count - SHOWN, "other")}: ` : null, where);
}

function problem(kind, title, rows, after) {
  const shown = rows.slice(0, SHOWN);
  return h(
    "div",
    { class: `problem ${kind}`, key: `${kind} ${title.replace(/[\d,]+/g, "")}` },
    h("h2", null, title),
    h("ul", null, shown.map((cells, index) => h("li", { key: String(index) }, cells.map((cell) => h("span", null, cell))))),
    after,
  );
}
