/** Page with lost messages: drops, refusals and dead letters by reason, largest first. */

import { address, exchangeAddress } from "../parts/address.js";
import { ApiError } from "../parts/api.js";
import { badge } from "../parts/badge.js";
import { Chart } from "../parts/chart.js";
import { h, patch } from "../parts/element.js";
import { countedNoun, dateTime, nameText, number, span } from "../parts/format.js";
import { choice, emptyState, heading, section } from "../parts/layout.js";
import { preference, setPreference } from "../parts/preferences.js";
import { levels, RANGES, samplesQuery } from "../parts/series.js";
import { Table } from "../parts/table.js";

const DEAD_LETTER_REASONS = ["maxlen", "expired", "rejected", "delivery_limit"];

/**
 * Reason for the removal of messages.
 *
 * @typedef {Object} Reason
 * @property {string} key key of the amount
 * @property {string} label
 * @property {string} text explanation
 * @property {boolean} isLost whether the messages count as lost
 */

/** @type {Reason[]} in display order */
const REASONS = [
  { key: "maxlen", label: "Over the limit", isLost: true, text: "The queue was full and dropped its oldest messages." },
  { key: "refused", label: "Refused", isLost: true, text: "The queue was full and refused them. Their publishers do not know it: they use no confirms." },
  { key: "expired", label: "Expired", isLost: true, text: "They exceeded their time to live." },
  { key: "rejected", label: "Rejected", isLost: true, text: "A consumer rejected them without requeueing." },
  { key: "delivery_limit", label: "Delivery limit", isLost: true, text: "They were requeued more often than the delivery limit allows." },
  { key: "letters", label: "Dead letters lost", isLost: true, text: "The dead-letter exchange did not exist or did not route them to a queue." },
  { key: "unroutable", label: "Unroutable", isLost: true, text: "No binding matched, and they were not published as mandatory." },
  { key: "told", label: "Refused, publisher told", isLost: false, text: "The queue was full and refused them. Their publishers were told: by confirms, a transaction or the answer over HTTP." },
  { key: "returned", label: "Returned", isLost: false, text: "No binding matched; they were returned to the publisher (mandatory)." },
  { key: "kept", label: "Dead-lettered", isLost: false, text: "They were routed to a queue through the dead-letter exchange." },
  { key: "purged", label: "Purged", isLost: false, text: "The queue was purged." },
  { key: "deleted", label: "Gone with the queue", isLost: false, text: "They were in a queue that was deleted or expired." },
];

/**
 * Split amounts by reason.
 *
 * The API counts dropped messages, dead letters published to an exchange, and dead letters that reached no queue.
 * The latter include those whose exchange did not exist; their number follows from the sum. If several reasons have
 * both, their distribution among the reasons is an estimate.
 *
 * @param {Object} amounts amounts of a row, a window or the totals, as in the API
 * @returns {Object<string, number>} amounts by the keys of REASONS; the lost ones add up to `amounts.lost`
 */
export function byReason({ lost, dropped, refused: all, refused_told: told, dead_lettered: handed, dead_letters_lost: gone, unroutable }) {
  const unrouted = unroutable.dropped;
  const refused = all - told;
  // Refused messages may also be dead-lettered (reject-publish-dlx), which is counted under maxlen.
  const died = { ...dropped, maxlen: dropped.maxlen + refused };
  const kept = Math.max(0, sum(died) + unrouted - lost);
  // Messages that were not published to a dead-letter exchange count as lost for their own reason.
  const left = Object.fromEntries(DEAD_LETTER_REASONS.map((death) => [death, died[death] - handed[death]]));
  const least = Object.fromEntries(DEAD_LETTER_REASONS.map((death) => [death, Math.max(0, gone[death] - handed[death])]));
  const rest = take(left, least, kept - sum(handed) + sum(gone));
  // Dead letters without an existing exchange, and those that wait to be published (at-least-once).
  const room = Object.fromEntries(DEAD_LETTER_REASONS.map((death) => [death, Math.min(gone[death] - least[death], left[death])]));
  const waiting = take(left, room, rest);
  take(left, { ...left }, waiting);
  const plain = Object.fromEntries(DEAD_LETTER_REASONS.map((death) => [death, Math.max(0, left[death])]));
  const maxlen = Math.min(plain.maxlen, Math.max(0, plain.maxlen - refused));
  return {
    ...plain,
    maxlen,
    refused: plain.maxlen - maxlen,
    told,
    letters: Math.max(0, lost - unrouted - sum(plain)),
    unroutable: unroutable.dropped,
    returned: unroutable.returned,
    kept,
    purged: dropped.purged,
    deleted: dropped.deleted,
  };
}

function sum(table) {
  return DEAD_LETTER_REASONS.reduce((total, death) => total + table[death], 0);
}

/** Subtract a total from the amounts, one reason after the other; return the part that did not fit. */
function take(left, room, total) {
  let rest = total;
  for (const death of DEAD_LETTER_REASONS) {
    const taken = Math.max(0, Math.min(rest, room[death]));
    left[death] -= taken;
    rest -= taken;
  }
  return rest;
}

const DAY = 86_400;
const WINDOWS = [
  ["600", "last ten minutes"],
  ["3600", "last hour"],
  ["28800", "last eight hours"],
  ["today", "today"],
  ["86400", "last 24 hours"],
  ["", "since losses are counted"],
];
const KINDS = [["", "all"], ["queue", "queues"], ["exchange", "exchanges"]];
/** Sort keys that are prefixed with "window." if a time window is chosen. */
const AMOUNTS = ["lost", "refused", "refused_told", "dropped.purged", "dropped.deleted", "unroutable.dropped", "unroutable.returned"];
const SORTS = { refused: "refused", told: "refused_told", purged: "dropped.purged", deleted: "dropped.deleted", unroutable: "unroutable.dropped", returned: "unroutable.returned" };
/** Reasons that are summed up in one figure of the totals. */
const FULL = ["maxlen", "refused"];
/** Short headings for narrow columns. */
const SHORT = { maxlen: "Limit", delivery_limit: "Deliveries", told: "Refused and told", letters: "Dead letters", deleted: "With queue" };

const COLUMNS = [
  { key: "name", label: "Queue or exchange", sort: "name", fixed: true, cell: subject },
  { key: "vhost", label: "Virtual host", sort: "vhost", cell: ({ vhost }) => vhost },
  { key: "lost", label: "Lost", numeric: true, sort: "lost", cell: (row) => h("strong", null, number(within(row).lost)) },
  ...REASONS.map(({ key, label, text }) => ({ key, label: SHORT[key] ?? label, title: `${label}: ${text}`, numeric: true, sort: SORTS[key], cell: (row) => amount(byReason(within(row))[key]) })),
  { key: "since", label: "Counted since", hidden: true, sort: "since", cell: ({ since }) => dateTime(since) },
];

/** Return the amounts of the time window, or those since the start without one. */
function within(row) {
  return row.window ?? row;
}

function amount(value) {
  return value === 0 ? null : number(value);
}

function subject({ kind, state, vhost, name, deleted_at: deletedAt }) {
  if (name === null) return [h("span", null, `other ${kind}s, together `), badge(`deleted ${kind}s`, "Sum of exclusive ones, those deleted more than a day ago, and those beyond the number that is kept individually", "warning")];
  const words = name || "(AMQP default)";
  if (state === "deleted") return [nameText(words), " ", badge(`deleted ${kind}`, `deleted ${dateTime(deletedAt)}; its counters are kept for a day`, "warning")];
  if (kind === "queue") return h("a", { href: address("queues", vhost, name) }, nameText(words));
  return [h("a", { href: exchangeAddress(vhost, name) }, nameText(words)), " ", badge("exchange", "Exchange: messages that it could not route")];
}

/** Return the length of a window in seconds; null without a window. */
function ageOf(window) {
  if (window === "") return null;
  if (window !== "today") return Number(window);
  const midnight = new Date().setHours(0, 0, 0, 0);
  return Math.min(DAY, Math.max(1, Math.ceil((Date.now() - midnight) / 1000)));
}

export default {
  title: () => "Losses",

  mount(context) {
    patch(context.root, heading("Losses"));
    const page = new LossesPage(context);
    return () => page.refresh();
  },
};

class LossesPage {
  constructor(context) {
    this.context = context;
    this.window = preference("losses.window", String(DAY));
    this.kind = "";
    this.chart = new LossesChart(context);
    this.choices = [
      choice("choose-window", "Lost", WINDOWS, this.window, (value) => this.chooseWindow(value)),
      choice("choose-kind", "Of", KINDS, this.kind, (value) => this.chooseKind(value)),
    ];
    this.table = new Table({
      id: "losses",
      caption: "queues and exchanges",
      one: "queue or exchange",
      columns: COLUMNS,
      rowKey: ({ kind, state, vhost, name, deleted_at: deletedAt }) => JSON.stringify([kind, state, vhost, name, deletedAt]),
      load: (query) => this.load(query),
      empty: () => this.emptyList(),
    });
  }

  chooseWindow(value) {
    this.window = value;
    setPreference("losses.window", value);
    this.table.state.page = 1;
    this.context.refresh();
  }

  chooseKind(value) {
    this.kind = value;
    this.table.state.page = 1;
    this.context.refresh();
  }

  async load(query) {
    const { vhost, api } = this.context;
    const age = ageOf(this.window);
    const sort = age !== null && AMOUNTS.includes(query.sort) ? `window.${query.sort}` : query.sort;
    const answer = await api.get(vhost === "" ? ["losses"] : ["losses", vhost], { ...query, sort, columns: null, age, kind: this.kind });
    Object.assign(this, { age, answer });
    return answer;
  }

  async refresh() {
    await this.table.refresh();
    const { totals, items } = this.answer;
    const rows = [...items].sort((one, other) => within(other).lost - within(one).lost).filter((row) => within(row).lost > 0);
    const from = (totals.window ?? totals).from ?? totals.since;
    await this.chart.refresh(rows, (Date.now() - from) / 1000);
    const amounts = within(totals);
    patch(
      this.context.root,
      heading("Losses", this.choices),
      this.since(totals),
      figures(amounts),
      rows.length > 0 ? this.chart.element : null,
      section("Where", this.table.element),
    );
  }

  /** Show when counting started: at the first start with the data directory. */
  since(totals) {
    const { age } = this;
    const from = totals.window?.from ?? totals.since;
    const isShort = age === null || from > Date.now() - age * 1000 + 5000;
    const why = isShort ? " Earlier losses are not known: losses are counted since then, also over restarts." : "";
    return h("p", { class: "muted" }, `Counted since ${dateTime(from)}, ${span((Date.now() - from) / 1000)} ago.${why}`);
  }

  emptyList() {
    const { totals } = this.answer;
    const from = dateTime(totals.window?.from ?? totals.since);
    const isAll = this.window === "";
    const advice = isAll
      ? ["To see which queues are nearly full, see the column Fill of the ", h("a", { href: address("queues") }, "queues"), "."]
      : "Choose a longer window above to see earlier losses.";
    return emptyState(`Nothing was lost since ${from}.`, advice);
  }
}

function figures(amounts) {
  const reasons = byReason(amounts);
  const valued = REASONS.filter(({ key }) => !FULL.includes(key)).map((reason) => ({ ...reason, value: reasons[reason.key] }));
  const total = { key: "lost", label: "Permanently lost", text: "In total.", value: amounts.lost, isLost: true };
  return [
    group("Lost", [total, overLimit(amounts, reasons), ...valued.filter(({ isLost }) => isLost)]),
    h("p", { class: "figures-between", key: "between" }, "Removed from their queues, but not lost:"),
    group("Not lost", valued.filter(({ isLost }) => !isLost)),
  ];
}

/** Return one figure for full queues, because the totals of the API do not separate refused dead letters. */
function overLimit({ refused }, reasons) {
  const refusals = refused > 0 ? ` ${countedNoun(refused, "publish", "publishes")} ${refused === 1 ? "was" : "were"} refused.` : "";
  return { key: "limit", label: "Over the limit", text: `Full queues dropped their oldest messages, or refused new ones of publishers without confirms.${refusals}`, value: reasons.maxlen + reasons.refused, isLost: true };
}

/** Make the figures of a group. Zero amounts are listed on one line. */
function group(label, all) {
  const isShown = ({ key, value }) => value > 0 || key === "lost";
  const shown = all.filter(isShown);
  const none = all.filter((each) => !isShown(each));
  return h(
    "div",
    { key: label },
    shown.length === 0 ? null : h("ul", { class: "figures", "aria-label": label }, shown.map(figure)),
    none.length === 0 ? null : h("p", { class: "muted" }, "None: ", none.map((each, index) => [index > 0 ? ", " : "", h("span", { key: each.key, title: each.text }, each.label.toLowerCase())]), "."),
  );
}

function figure({ key, label, text, value, isLost }) {
  const kind = value > 0 ? (isLost ? "bad" : "") : "muted";
  return h("li", { key, class: key === "lost" ? "figure total" : "figure" }, h("span", { class: `figure-value ${kind}` }, number(value)), h("span", { class: "figure-label" }, label), h("span", { class: "figure-text" }, text));
}

const TOP = 5;

/** Chart of the first rows, with its own requests. */
class LossesChart {
  /** @param {Object} context context of the page */
  constructor(context) {
    this.context = context;
    this.chart = new Chart({ title: "Losses over time", stacked: true, empty: "There are no samples yet." });
    this.note = h("p", { class: "muted" });
    this.element = h("div", { class: "section", own: true }, this.chart.element, this.note);
  }

  /**
   * Load and draw.
   *
   * @param {Object[]} rows rows of the API, largest losses first
   * @param {number} age length of the range in seconds; there are samples of one day
   */
  async refresh(rows, age) {
    const top = rows.filter(({ state, name }) => state === "present" && name !== null).slice(0, TOP);
    const [reach, increment] = RANGES.find(([each]) => each >= age) ?? RANGES.at(-1);
    const found = await Promise.all(top.map((row) => this.load(row, samplesQuery(reach, increment))));
    const series = top.map((row, index) => ({ label: label(row, top), title: row.vhost, points: steps(found[index]) }));
    this.chart.update(series.filter(({ points }) => points.length > 0));
    patch(this.note, series.length === 0 ? null : `Messages lost per ${span(increment)}, for the existing queues and exchanges with the largest losses.`);
  }

  async load({ kind, vhost, name }, range) {
    try {
      const document = await this.context.api.get([`${kind}s`, vhost, name || "amq.default"], { columns: "loss_stats", ...range });
      return document.loss_stats?.lost_details;
    } catch (error) {
      // Deleted after the list was loaded.
      if (error instanceof ApiError && error.status === 404) return undefined;
      throw error;
    }
  }
}

function label({ kind, vhost, name }, rows) {
  const words = name || "(AMQP default)";
  const isUnique = rows.every((row) => row.name !== name || (row.vhost === vhost && row.kind === kind));
  return isUnique ? words : `${words} (${kind} in ${vhost})`;
}

/** Return the increases of a counter between its samples. */
function steps(details) {
  const points = levels(details);
  return points.slice(1).map(({ at, value }, index) => ({ at, value: Math.max(0, value - points[index].value) }));
}
