/** Page of a queue. */

import { address } from "../parts/address.js";
import { ApiError } from "../parts/api.js";
import { badge } from "../parts/badge.js";
import { Chart } from "../parts/chart.js";
import { confirmAction } from "../parts/dialog.js";
import { h, patch } from "../parts/element.js";
import { Form } from "../parts/form.js";
import { exactNumber, shortRate, yesNo } from "../parts/format.js";
import { emptyState, folded, heading, plainTable, section, valueTable } from "../parts/layout.js";
import { PublishForm } from "../parts/publish_form.js";
import { levels, RangeChoice, rates } from "../parts/series.js";
import { ConsumerNames } from "./consumer_names.js";
import { DelayedMessages } from "./delayed_messages.js";
import { bindingForm, bindingsTable } from "./queue_bindings.js";
import { DETAIL_FIELDS, fillAndStorage, queueProperties, queueTiles } from "./queue_details.js";
import { ReplayForm, ReturnForm } from "./queue_job.js";
import { LOSS_FIELDS, lossCount, LossSection } from "./queue_losses.js";
import { BrowseForm, GetForm } from "./queue_messages.js";
import { MoveForm } from "./queue_move.js";
import { DeadLetterOrigins } from "./queue_origins.js";
import { limitAdvice, missingExchange, settingsTable, skippedPolicies } from "./queue_settings.js";

const CHART_FIELDS = ["messages_ready_details", "messages_unacknowledged_details", "message_stats"];
const COLUMNS = [...DETAIL_FIELDS, ...CHART_FIELDS, ...LOSS_FIELDS, "consumer_details"].join(",");

export default {
  title: ({ name }) => `Queue ${name}`,

  mount(context) {
    patch(context.root, heading(`Queue ${context.params.name}`));
    const parts = makeParts(context);
    let wasThere = false;
    return async () => {
      try {
        const loaded = await load(context, parts);
        wasThere = true;
        show(context, parts, loaded);
      } catch (error) {
        if (!(error instanceof ApiError) || error.status !== 404) throw error;
        patch(context.root, missingQueue(context.params, wasThere));
      }
    };
  },
};

/** Make the stateful parts of the page, once. */
function makeParts(context) {
  const { vhost, name } = context.params;
  const get = new GetForm(context);
  const move = new MoveForm(context);
  const returning = new ReturnForm(context);
  const replaying = new ReplayForm(context);
  const removal = deleteForm(context);
  const parts = {
    range: new RangeChoice(() => context.refresh()),
    charts: new QueueCharts(),
    losses: new LossSection(context),
    origins: new DeadLetterOrigins(context),
    bindings: bindingsTable(context),
    removal,
    forms: {
      bind: folded("Add a binding", bindingForm(context).element),
      publish: folded(
        "Publish a message",
        h("p", { class: "muted" }, "Published to the default exchange with the queue's name as routing key."),
        new PublishForm(context, { vhost, exchange: "", routingKey: name }).element,
      ),
      browse: folded("Browse messages", new BrowseForm(context).element),
      get: folded(ACTIONS.get, get.element),
      move: folded(ACTIONS.move, move.element),
      return: folded(ACTIONS.return, returning.element),
      replay: folded(ACTIONS.replay, replaying.element),
      purge: folded(ACTIONS.purge, purgeForm(context).element),
      delete: folded("Delete", removal.element),
    },
  };
  parts.forms.move.addEventListener("toggle", () => parts.forms.move.open && move.offer());
  parts.forms.return.addEventListener("toggle", () => parts.forms.return.open && returning.job.offer());
  parts.forms.replay.addEventListener("toggle", () => parts.forms.replay.open && replaying.job.offer());
  return parts;
}

async function load(context, parts) {
  const { api, params } = context;
  const path = ["queues", params.vhost, params.name];
  parts.keys ??= await api.get(["policy-keys"]);
  const [queue, explanation] = await Promise.all([
    api.get(path, { ...parts.range.query, columns: COLUMNS }),
    api.get([...path, "explain"]),
    parts.bindings.refresh(),
  ]);
  // With statistics disabled, only the explanation has this value.
  queue.fill ??= explanation.fill;
  const history = lossCount(queue) > 0 ? await parts.losses.load() : null;
  // Once messages have waited, the list stays.
  if (queue.messages_delayed > 0) parts.delayed ??= new DelayedMessages(context, "queue", params.name);
  await parts.delayed?.refresh();
  await parts.origins.refresh(queue);
  if (queue.type === "stream") parts.names ??= new ConsumerNames(context);
  await parts.names?.refresh();
  return { queue, explanation, history };
}

function show({ root, user }, parts, { queue, explanation, history }) {
  const { forms } = parts;
  const mayUse = !queue.exclusive;
  const offered = queue.type === "stream" ? ["replay"] : mayUse ? ["get", "move", "return", "purge"] : [];
  parts.charts.update(queue);
  parts.losses.update(queue, history, explanation);
  showRemovalConditions(parts.removal, queue);
  patch(
    root,
    heading([`Queue ${queue.name} `, h("small", null, `in virtual host ${queue.vhost}`)], parts.range.element),
    contents(root, offered, mayUse),
    queueTiles(queue),
    parts.origins.section(offered.includes("return") ? goTo(root, ACTIONS.return) : null),
    parts.charts.element,
    h(
      "div",
      { class: "charts blocks" },
      // A policy of a stream comes before its arguments, so there is no advice.
      section("Fill and storage", fillAndStorage(queue), queue.stream ? null : limitAdvice(user, explanation)),
      section("About", queueProperties(queue)),
    ),
    section("Settings", missingExchange(explanation), settingsTable(explanation, parts.keys), skippedPolicies(explanation)),
    section("Losses", parts.losses.element),
    parts.delayed ? section("Delayed retries", parts.delayed.element) : null,
    section("Consumers", consumersTable(queue.consumer_details ?? [])),
    parts.names ? section("Consumer names", parts.names.element) : null,
    section("Bindings", parts.bindings.element),
    forms.bind,
    forms.publish,
    forms.browse,
    offered.map((name) => forms[name]),
    mayUse ? forms.delete : exclusiveNote(),
  );
}

function exclusiveNote() {
  const text = "The queue is exclusive: only the connection that declared it can get, purge or delete.";
  return section("Messages", h("p", null, text));
}

/** Hide the conditions, which only classic queues support. */
function showRemovalConditions(form, { type }) {
  for (const { row } of form.fields) row.hidden = type !== "classic";
}

const PLACES = ["Settings", "Losses", "Consumers", "Bindings", "Publish a message", "Browse messages"];
const ACTIONS = {
  get: "Get messages",
  move: "Move messages",
  return: "Return dead letters",
  replay: "Replay messages",
  purge: "Purge",
};

/** Make the buttons that scroll to the parts of the page and open closed sections. */
function contents(root, offered, mayUse) {
  const names = [...PLACES, ...offered.map((name) => ACTIONS[name]), ...(mayUse ? ["Delete"] : [])];
  const buttons = names.map((name) => goTo(root, name));
  return h("nav", { class: "contents", "aria-label": "On this page" }, buttons);
}

function goTo(root, name) {
  return h("button", { type: "button", class: "quiet", key: name, on: { click: () => scrollToSection(root, name) } }, name);
}

function scrollToSection(root, name) {
  const title = [...root.querySelectorAll(".section > h2, .section > summary")].find((each) => each.textContent === name);
  const place = title.parentElement;
  if (place.tagName === "DETAILS") place.open = true;
  place.scrollIntoView();
  const wanted = place.tagName === "DETAILS" ? "input, select, textarea, button" : "[tabindex='0']";
  place.querySelector(wanted)?.focus({ preventScroll: true });
}

function missingQueue({ vhost, name }, wasThere) {
  return [
    heading(`Queue ${name}`),
    emptyState(
      wasThere ? "This queue has been deleted." : `There is no queue of this name in virtual host ${vhost}.`,
      h("a", { href: address("queues") }, "All queues"),
      " – what deleted queues had lost is among the ",
      h("a", { href: address("losses") }, "losses"),
      ".",
    ),
  ];
}

const LENGTHS = [
  ["messages_ready", "Ready", "waiting"],
  ["messages_unacknowledged", "Unacked", "delivered, and not acknowledged yet"],
];
const RATES = [
  ["publish", "Publish", "that came in"],
  ["deliver", "Deliver", "delivered to consumers that acknowledge"],
  ["deliver_no_ack", "Deliver (auto ack)", "delivered to consumers that do not acknowledge"],
  ["ack", "Ack", "acknowledged by consumers"],
  ["get", "Get", "fetched one by one"],
  ["redeliver", "Redeliver", "delivered once more"],
  ["drop", "Drop", "removed without being acknowledged: over the limit, expired, rejected"],
  ["refuse", "Refuse", "refused because the queue was full"],
];
/** The limit is drawn from this usage on. A limit far above the values would flatten the chart. */
const SHOW_LIMIT_FROM = 0.4;

/** Charts of queue length and message rates. */
class QueueCharts {
  constructor() {
    this.lengths = new Chart({ title: "Messages", stacked: true });
    this.rates = new Chart({ title: "Message rates", format: shortRate, empty: "No message has been published or delivered yet." });
    this.element = h("div", { class: "charts", own: true }, this.lengths.element, this.rates.element);
  }

  /** Draw the charts of a queue. @param {Object} queue queue object of the API, with samples */
  update(queue) {
    const lengths = LENGTHS.map(([name, label, title]) => ({ label, title, points: levels(queue[`${name}_details`]) }));
    this.lengths.update([...lengths, ...limitLine(queue.fill, lengths[0].points)]);
    const stats = queue.message_stats ?? {};
    const drawn = RATES.map(([name, label, title], index) => {
      return { label, title, colour: index + 1, points: rates(stats[`${name}_details`]) };
    });
    this.rates.update(drawn);
  }
}

function limitLine(fill, ready) {
  const limit = fill?.max_length ?? null;
  const highest = Math.max(0, ...ready.map(({ value }) => value));
  if (limit === null || highest < limit * SHOW_LIMIT_FROM) return [];
  const points = ready.map(({ at }) => ({ at, value: limit }));
  return [{ label: "Limit", title: `max-length, by ${fill.max_length_source}`, points, limit: true, colour: 8 }];
}

const SHOWN = 200;
const HEADINGS = [
  "Channel",
  "Consumer tag",
  { label: "Acknowledges", title: "Whether it acknowledges messages, or they count as acknowledged when they are sent" },
  { label: "Prefetch", numeric: true, title: "Maximum number of unacknowledged messages" },
  { label: "Active", title: "Whether it receives messages, or waits to become the active consumer" },
  "Arguments",
];

/**
 * Make the table of consumers.
 *
 * @param {Object[]} consumers `consumer_details` of a queue
 * @returns {Array<HTMLElement|null>}
 */
function consumersTable(consumers) {
  if (consumers.length === 0) {
    const advice = "Messages wait until an application consumes them. You can get or move them below.";
    return [emptyState("This queue has no consumers.", advice)];
  }
  const rows = consumers.slice(0, SHOWN).map((consumer) => ({
    key: JSON.stringify([consumer.channel_details.name, consumer.consumer_tag]),
    cells: cells(consumer),
  }));
  const isCut = consumers.length > SHOWN;
  const more = isCut ? h("p", { class: "muted" }, `The first ${SHOWN} of ${exactNumber(consumers.length)}.`) : null;
  return [plainTable("Consumers", HEADINGS, rows), more];
}

function cells(consumer) {
  const { channel_details: channel, consumer_tag: tag, ack_required: acks, prefetch_count: prefetch } = consumer;
  const { active, exclusive, arguments: args } = consumer;
  return [
    h("a", { href: address("channels", channel.name) }, channel.name),
    [tag, " ", exclusive ? badge("Excl", "exclusive: no other consumer is let in") : null],
    acks ? "yes" : h("span", { title: "Messages are removed when they are sent" }, "no, automatic"),
    prefetch === 0 ? h("span", { title: "Any number of messages may be unacknowledged" }, "no limit") : exactNumber(prefetch),
    active ? "yes" : h("span", { class: "muted" }, yesNo(active)),
    valueTable(args),
  ];
}

/**
 * Make the form that purges the queue of the page.
 *
 * @param {Object} context context of the page
 * @returns {Form}
 */
function purgeForm({ api, params, refresh }) {
  return new Form({
    fields: [],
    submit: "Purge …",
    action: async () => {
      const isDone = await confirmAction({
        title: "Purge queue",
        name: params.name,
        text: "All ready messages are deleted without dead-lettering. Unacked messages are kept.",
        verb: "Purge",
        action: () => api.delete(["queues", params.vhost, params.name, "contents"]),
      });
      if (!isDone) return "";
      await refresh();
      return "The queue has been purged.";
    },
  });
}

/**
 * Make the form that deletes the queue of the page.
 *
 * @param {Object} context context of the page
 * @returns {Form}
 */
function deleteForm(context) {
  return new Form({
    fields: [
      { name: "ifUnused", label: "Only if unused", kind: "checkbox", hint: "Unused means that it has no consumers." },
      { name: "ifEmpty", label: "Only if empty", kind: "checkbox", hint: "Empty means that no message is ready." },
    ],
    submit: "Delete …",
    keep: true,
    action: (values) => remove(context, values),
  });
}

async function remove({ api, params, navigate, notify }, { ifUnused, ifEmpty }) {
  const conditions = { "if-unused": ifUnused ? "true" : null, "if-empty": ifEmpty ? "true" : null };
  const isDone = await confirmAction({
    title: "Delete queue",
    name: params.name,
    text: "Its messages and bindings are deleted.",
    verb: "Delete",
    action: () => api.delete(["queues", params.vhost, params.name], conditions),
  });
  if (!isDone) return "";
  notify(`Queue ${params.name} has been deleted.`);
  navigate(address("queues"));
  return "";
}
