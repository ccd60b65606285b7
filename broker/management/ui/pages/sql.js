/** Page that answers SQL statements over what waits and what has come: as a table, a chart, or a file. */

import { Chart } from "../parts/chart.js";
import { h, patch } from "../parts/element.js";
import { Form } from "../parts/form.js";
import { countedNoun, exactNumber, plain } from "../parts/format.js";
import { heading, plainTable, section } from "../parts/layout.js";

/** A statement ends by the broker's limit; this is only for one that does not answer. In milliseconds. */
const TIMEOUT_MS = 3_700_000;
const BARS = 30;
const NUMBERS = /^(U?(TINY|SMALL|BIG|HUGE)?INT(EGER)?|DOUBLE|FLOAT|DECIMAL.*)$/;
const INTRO = "One SELECT, as DuckDB writes it, over the tables messages, delayed, events, queues and segments, and with an archive over archived_messages and archived_events. " +
  "You see the rows of queues that you may read. Nothing is consumed. What was published less than about a second ago, or is in memory alone, is not in the tables.";

export default {
  title: () => "SQL",

  mount(context) {
    const page = new SqlPage(context);
    patch(context.root, heading("SQL"), h("p", null, INTRO), page.element);
    return async () => {};
  },
};

class SqlPage {
  constructor(context) {
    this.context = context;
    this.stop = null;
    this.form = new Form({
      fields: [
        { name: "example", label: "Question", kind: "select", options: [{ value: "", label: "own statement" }, ...EXAMPLES.map(({ question }, index) => ({ value: String(index), label: question }))] },
        { name: "statement", label: "Statement", kind: "textarea", rows: 6, wide: true, required: true, value: EXAMPLES[0].statement, hint: "as_text(body) and as_json(body) read bodies; DESCRIBE messages lists the columns." },
        { name: "rows", label: "Rows", kind: "number", value: "1000", required: true, check: checkRows },
        { name: "format", label: "Result", kind: "select", options: [{ value: "json", label: "on this page" }, { value: "csv", label: "as a CSV file" }, { value: "parquet", label: "as a Parquet file" }] },
      ],
      submit: "Run",
      keep: true,
      action: (values) => this.run(values),
    });
    const [question, statement] = this.form.fields.map(({ control }) => control);
    question.addEventListener("change", () => {
      if (question.value !== "") statement.value = EXAMPLES[Number(question.value)].statement;
    });
    this.cancel = h("button", { type: "button", on: { click: () => this.stop?.abort() } }, "Cancel");
    this.cancel.hidden = true;
    this.form.button.after(this.cancel);
    this.result = h("div", { class: "sql-result" });
    this.chart = null;
    this.element = h("div", { own: true }, this.form.element, this.result);
  }

  async run({ statement, rows, format }) {
    this.stop = new AbortController();
    this.cancel.hidden = false;
    patch(this.result);
    const began = performance.now();
    try {
      const options = { body: { statement, rows, format }, abort: this.stop.signal, timeout: TIMEOUT_MS };
      if (format !== "json") {
        save(await this.context.api.request("POST", ["sql"], { ...options, asBlob: true }), `result.${format}`);
        return "The file is complete.";
      }
      const found = await this.context.api.request("POST", ["sql"], { ...options, exact: true });
      this.show(found, (performance.now() - began) / 1000);
      return "";
    } catch (error) {
      if (this.stop.signal.aborted && !this.context.signal.aborted) return "Cancelled.";
      throw error;
    } finally {
      this.cancel.hidden = true;
    }
  }

  show({ columns, rows, truncated }, seconds) {
    const headings = columns.map(({ name, type }) => ({ label: name, title: type, numeric: NUMBERS.test(type) }));
    const cells = rows.map((row, index) => ({ key: String(index), cells: row.map(cell) }));
    const said = `${countedNoun(rows.length, "row")} in ${seconds.toFixed(1)} s${truncated ? "; there are more" : ""}.`;
    patch(this.result, this.drawn(columns, rows), section("Result", h("p", { role: "status" }, said), plainTable("result", headings, cells)));
  }

  /** Draw the numbers of a result: over time if its first column is a time, else as bars. */
  drawn(columns, rows) {
    const numbers = columns.flatMap(({ type }, index) => (index > 0 && NUMBERS.test(type) ? [index] : []));
    if (numbers.length === 0 || rows.length < 2) return null;
    if (columns[0].type.startsWith("TIMESTAMP") || columns[0].type === "DATE") {
      const timed = rows.map((row) => [Date.parse(row[0]), row]).filter(([at]) => !Number.isNaN(at)).sort(([one], [other]) => one - other);
      const chart = new Chart({ title: columns[0].name });
      chart.update(numbers.map((index) => ({ label: columns[index].name, points: timed.map(([at, row]) => ({ at, value: Number(row[index] ?? 0) })) })));
      return section("Chart", chart.element);
    }
    const index = numbers[0];
    const most = Math.max(...rows.map((row) => Number(row[index] ?? 0)));
    if (!(most > 0)) return null;
    const names = columns.slice(0, index).map(({ name }) => name);
    const bars = rows.slice(0, BARS).map((row, place) => ({
      key: String(place),
      cells: [row.slice(0, index).map(plain).join(", "), bar(Number(row[index] ?? 0), most)],
    }));
    return section("Chart", plainTable("chart", [names.join(", "), columns[index].name], bars));
  }
}

function bar(value, most) {
  return h("span", { class: "fill" }, h("progress", { value: Math.max(0, value), max: most, "aria-label": exactNumber(value) }), h("span", { class: "fill-text" }, exactNumber(value)));
}

function cell(value) {
  if (value === null) return h("span", { class: "muted" }, "null");
  return h("span", { class: typeof value === "number" ? "number" : "sentence" }, plain(value));
}

function save(blob, name) {
  // Not by h(), which allows no addresses but those of the pages and the API.
  const link = Object.assign(document.createElement("a"), { href: URL.createObjectURL(blob), download: name });
  link.click();
  URL.revokeObjectURL(link.href);
}

function checkRows(rows) {
  return Number.isInteger(rows) && rows >= 1 ? null : "This must be at least 1.";
}

const EXAMPLES = [
  {
    question: "What waits where, and since when?",
    statement: "select vhost, queue, count(*) as messages, min(enqueued_at) as oldest, sum(body_bytes) as bytes\nfrom messages\ngroup by all\norder by messages desc",
  },
  {
    question: "When did it arrive?",
    statement: "select date_trunc('minute', enqueued_at) as minute, count(*) as messages\nfrom messages\ngroup by minute\norder by minute",
  },
  {
    question: "By which routing keys?",
    statement: "select queue, exchange, routing_key, count(*) as messages\nfrom messages\ngroup by all\norder by messages desc\nlimit 50",
  },
  {
    question: "By which header?",
    statement: "select headers['region'] as region, count(*) as messages\nfrom messages\nwhere queue = 'orders'\ngroup by region\norder by messages desc",
  },
  {
    question: "By which field of a JSON body?",
    statement: "select as_json(body) ->> '$.customer' as customer, count(*) as messages\nfrom messages\nwhere queue = 'orders'\ngroup by customer\norder by messages desc\nlimit 50",
  },
  {
    question: "Which messages contain a text?",
    statement: "select queue, seq, message_id, enqueued_at, as_text(body) as body\nfrom messages\nwhere as_text(body) like '%refund%'\nlimit 20",
  },
  {
    question: "Which are poison messages?",
    statement: "select queue, message_id, dead_letter_count, dead_letter_reason, dead_letter_queue, redelivered, as_text(body) as body\nfrom messages\nwhere dead_letter_count > 0 or redelivered\norder by dead_letter_count desc\nlimit 20",
  },
  {
    question: "Who publishes it?",
    statement: "select queue, user_id, app_id, type, count(*) as messages\nfrom messages\ngroup by all\norder by messages desc\nlimit 50",
  },
  {
    question: "Which are the largest?",
    statement: "select queue, seq, message_id, content_type, body_bytes\nfrom messages\norder by body_bytes desc\nlimit 20",
  },
  {
    question: "Which came twice?",
    statement: "select message_id, count(*) as messages, list(distinct queue) as queues\nfrom messages\nwhere message_id is not null\ngroup by message_id\nhaving count(*) > 1\norder by messages desc\nlimit 50",
  },
  {
    question: "What has become of messages, and how long did they wait?",
    statement: "select queue, kind, sum(messages) as messages, max(wait_ms) / 1000 as longest_wait_seconds\nfrom events\nwhere event_at > now() - interval 1 day\ngroup by all\norder by messages desc",
  },
  {
    question: "What is delayed, and until when?",
    statement: "select delayed_in, count(*) as messages, min(due_at) as first_due, max(due_at) as last_due\nfrom delayed\ngroup by all",
  },
];
