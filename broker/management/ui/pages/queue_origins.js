/** Where the dead letters in a queue come from, and why. */

import { address, exchangeAddress } from "../parts/address.js";
import { ApiError } from "../parts/api.js";
import { h } from "../parts/element.js";
import { ago, countedNoun, exactNumber, nameText } from "../parts/format.js";
import { plainTable, section } from "../parts/layout.js";

/** How long counts are shown before messages are looked at again, in milliseconds. */
const SHOWN_MS = 15_000;
/** What is added to a reason that does not speak for itself. */
const REASONS = { maxlen: "the queue was full", rejected: "by a consumer", delivery_limit: "delivered too often" };
const COLUMNS = [
  "Comes from queue",
  "Why",
  { label: "Messages", numeric: true },
  { label: "Latest", title: "When the last of them arrived here" },
  { label: "Oldest", title: "When the first of them arrived here", wide: true },
  { label: "Published to exchange", wide: true },
];

/** Counts the dead letters of a queue, and shows them. */
export class DeadLetterOrigins {
  /** @param {Object} context context of the page */
  constructor({ api, params }) {
    this.api = api;
    this.params = params;
    this.counted = null;
    this.of = null;
    this.at = 0;
  }

  /** Count them, if the queue has changed and the counts are not of just now. @param {Object} queue object of the API */
  async refresh({ messages, type }) {
    const isKnown = this.of === messages || performance.now() - this.at < SHOWN_MS;
    if (type === "stream" || (this.counted !== null && isKnown)) return;
    const { vhost, name } = this.params;
    [this.of, this.at] = [messages, performance.now()];
    try {
      this.counted = messages > 0 ? await this.api.get(["queues", vhost, name, "dead-letters"]) : { origins: [] };
    } catch (error) {
      if (!(error instanceof ApiError) || error.isLoggedOut) throw error;
      // Looking needs the permission to read.
      this.counted = { origins: [] };
    }
  }

  /** Make the section. @param {HTMLElement} returning button that leads to the form @returns {HTMLElement|null} null if there are none */
  section(returning) {
    if (this.counted === null || this.counted.origins.length === 0) return null;
    const { scanned, complete, dead_letters: count, origins } = this.counted;
    const all = complete ? "" : `, of the first ${exactNumber(scanned)} messages`;
    const others = scanned - count;
    const words = `${countedNoun(count, "dead letter")}${all}${others > 0 ? `; ${countedNoun(others, "other message")}` : ""}. `;
    const rows = origins.map((each, index) => ({ key: String(index), cells: this.cells(each) }));
    return section("Dead letters", plainTable("dead letters by origin", COLUMNS, rows), h("p", { class: "beside" }, words, returning));
  }

  cells({ queue, reason, exchange, messages, oldest, newest }) {
    const { vhost } = this.params;
    const time = (at) => (at === null ? null : ago(at));
    if (queue === null) return ["others", null, exactNumber(messages), time(newest), time(oldest), null];
    return [
      h("a", { href: address("queues", vhost, queue) }, nameText(queue)),
      [reason, Object.hasOwn(REASONS, reason) ? h("span", { class: "muted" }, ` – ${REASONS[reason]}`) : null],
      exactNumber(messages),
      time(newest),
      time(oldest),
      h("a", { href: exchangeAddress(vhost, exchange) }, nameText(exchange || "(AMQP default)")),
    ];
  }
}
