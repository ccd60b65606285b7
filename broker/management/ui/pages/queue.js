/** Page of a queue. */

import { address } from "../parts/address.js";
import { ApiError } from "../parts/api.js";
import { h, patch } from "../parts/element.js";
import { emptyState, folded, heading, section } from "../parts/layout.js";
import { PublishForm } from "../parts/publish_form.js";
import { RangeChoice } from "../parts/series.js";
import { ConsumerNames } from "./consumer_names.js";
import { DelayedMessages } from "./delayed_messages.js";
import { bindingForm, bindingsTable } from "./queue_bindings.js";
import { BrowseForm } from "./queue_browse.js";
import { CHART_FIELDS, QueueCharts } from "./queue_charts.js";
import { consumersTable } from "./queue_consumers.js";
import { DETAIL_FIELDS, fillAndStorage, queueProperties, queueTiles } from "./queue_details.js";
import { GetForm } from "./queue_get.js";
import { ReplayForm, ReturnForm } from "./queue_job.js";
import { LOSS_FIELDS, LossSection, lossCount } from "./queue_losses.js";
import { MoveForm } from "./queue_move.js";
import { DeadLetterOrigins } from "./queue_origins.js";
import { limitAdvice } from "./queue_policy_links.js";
import { deleteForm, purgeForm } from "./queue_removal.js";
import { missingExchange, settingsTable, skippedPolicies } from "./queue_settings.js";

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
