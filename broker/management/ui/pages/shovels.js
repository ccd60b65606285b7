/** Page with the shovels: what they move from where to where, and why they do not. */

import { badge } from "../parts/badge.js";
import { confirmAction } from "../parts/dialog.js";
import { h, patch } from "../parts/element.js";
import { nameText, number } from "../parts/format.js";
import { actions, emptyState, heading, plainTable } from "../parts/layout.js";

const COLUMNS = [
  { label: "Virtual host" },
  { label: "Name" },
  { label: "State", title: "starting: connects, or tries again; running: moves messages; terminated: has failed, and tries again" },
  { label: "Source" },
  { label: "Destination" },
  { label: "Forwarded", numeric: true, title: "Messages that were published at the destination since the start of the broker" },
  { label: "Since", title: "Time of the last change of state, UTC" },
  { label: "" },
];

const STATES = { running: "good", starting: "warning", terminated: "bad" };

export default {
  title: () => "Shovels",

  mount(context) {
    patch(context.root, heading("Shovels"));
    return async () => {
      const found = await context.api.get(context.vhost === "" ? ["shovels"] : ["shovels", context.vhost]);
      patch(context.root, heading("Shovels"), found.length === 0 ? none() : plainTable("shovels", COLUMNS, found.map((shovel) => row(context, shovel))));
    };
  },
};

function none() {
  return emptyState("There are no shovels.", "leveretctl set_parameter shovel NAME '{\"src-uri\": …}' makes one: it moves messages between brokers, or between virtual hosts.");
}

function end(uri, queue, exchange, key) {
  if (uri === undefined) return null;
  const what = queue === undefined ? exchange && ["exchange ", nameText(exchange), key && [" by ", nameText(key)]] : ["queue ", nameText(queue)];
  return h("span", null, uri, what && h("div", null, what));
}

function row(context, shovel) {
  const { vhost, name, state, reason, timestamp, forwarded } = shovel;
  const status = [badge(state, state, STATES[state] ?? "plain"), reason && h("div", { class: "sentence" }, reason)];
  return {
    key: `${vhost ?? ""}/${name}`,
    cells: [vhost ?? h("span", { class: "muted" }, "static"), nameText(name), h("span", null, status), end(shovel.src_uri, shovel.src_queue, shovel.src_exchange, shovel.src_exchange_key), end(shovel.dest_uri, shovel.dest_queue, shovel.dest_exchange, shovel.dest_exchange_key), number(forwarded), timestamp, vhost !== undefined && context.user.may("policymaker") ? buttons(context, vhost, name) : null],
  };
}

function buttons({ api, notify, refresh }, vhost, name) {
  const ask = (verb, done, text, path, isHarmless) => async () => {
    const isDone = await confirmAction({ title: `${verb} a shovel`, name: `Shovel ${name}`, text, isHarmless, verb, action: () => api.delete(path) });
    if (!isDone) return;
    notify(`Shovel ${name} has been ${done}.`);
    await refresh();
  };
  const path = ["shovels", "vhost", vhost, name];
  const restart = ask("Restart", "restarted", "What is on its way returns to its queue, and may come twice.", [...path, "restart"], true);
  const remove = ask("Delete", "deleted", "Its parameter goes, too. What is on its way returns to its queue.", path, false);
  return actions(
    h("button", { type: "button", class: "quiet", "aria-label": `Restart shovel ${name}`, on: { click: restart } }, "Restart …"),
    h("button", { type: "button", class: "quiet", "aria-label": `Delete shovel ${name}`, on: { click: remove } }, "Delete …"),
  );
}
