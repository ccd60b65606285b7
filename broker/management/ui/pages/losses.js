/** Page with lost messages: drops, refusals and dead letters by reason, largest first. */

import { address, exchangeAddress } from "../parts/address.js";
import { badge } from "../parts/badge.js";
import { choice } from "../parts/choice.js";
import { h, patch } from "../parts/element.js";
import { countedNoun, dateTime, nameText, number, span } from "../parts/format.js";
import { emptyState, heading, section } from "../parts/layout.js";
import { preference, setPreference } from "../parts/preferences.js";
import { Table } from "../parts/table.js";
import { REASONS, byReason } from "./losses_amounts.js";
import { LossesChart } from "./losses_chart.js";

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
