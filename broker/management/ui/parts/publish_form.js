/** Form that publishes a message. */

import { h } from "./element.js";
import { Form } from "./form.js";
import { Notice } from "./notice.js";

const MODES = [
  { value: "1", label: "1, transient" },
  { value: "2", label: "2, persistent" },
];
const ENCODINGS = [
  { value: "string", label: "text" },
  { value: "base64", label: "base64, for bytes" },
];
const NUMBERS = new Set(["priority", "timestamp"]);
const PROPERTIES = [
  ["content_type", "MIME type of the payload"],
  ["content_encoding", "MIME encoding of the payload"],
  ["correlation_id", "identifier of the request that this message answers"],
  ["reply_to", "queue for replies"],
  ["message_id", "identifier of the message"],
  ["expiration", "time to live in milliseconds"],
  ["priority", "0 to 255"],
  ["timestamp", "seconds since 1970"],
  ["type", "type of the message, for applications"],
  ["app_id", "identifier of the application"],
  ["user_id", "must be your user name if set"],
];

/** Form that publishes a message; `element` is created once. */
export class PublishForm {
  /**
   * @param {Object} context context of the page
   * @param {{vhost: string, exchange: string, routingKey?: string}} target `exchange`: "" is the default exchange;
   *   `routingKey`: fixed routing key; without it the form has a field for it
   */
  constructor(context, { vhost, exchange, routingKey }) {
    Object.assign(this, { context, vhost, exchange, routingKey });
    this.unrouted = new Notice("warning");
    this.form = new Form({
      fields: [
        ...(routingKey === undefined ? [{ name: "key", label: "Routing key" }] : []),
        { name: "mode", label: "Delivery mode", kind: "select", options: MODES, value: "1" },
        { name: "encoding", label: "Payload is", kind: "select", options: ENCODINGS, value: "string" },
        { name: "headers", label: "Headers", kind: "arguments" },
        { name: "properties", label: "Properties", kind: "arguments", suggestions: PROPERTIES.map(([key, hint]) => ({ key, hint, type: NUMBERS.has(key) ? "Number" : "String" })) },
        { name: "payload", label: "Payload", kind: "textarea", rows: 5, wide: true },
      ],
      submit: "Publish",
      keep: true,
      action: (values) => this.publish(values),
    });
    this.element = h("div", { own: true }, this.form.element, this.unrouted.element);
  }

  async publish({ key = this.routingKey, mode, encoding, headers, properties, payload }) {
    this.unrouted.clear();
    const body = {
      routing_key: key,
      properties: { ...withNumbers(properties), delivery_mode: Number(mode), headers },
      payload,
      payload_encoding: encoding,
    };
    const { routed } = await this.context.api.post(["exchanges", this.vhost, this.exchange || "amq.default", "publish"], body);
    if (!routed) this.unrouted.show("The message was published, but not routed: no binding matches, so it is lost.");
    await this.context.refresh();
    return routed ? "The message was published and routed." : "";
  }
}

/** Convert typed texts to numbers for the properties that are numbers. */
function withNumbers(properties) {
  return Object.fromEntries(Object.entries(properties).map(([name, value]) => [name, NUMBERS.has(name) && /^\d+$/.test(value) ? Number(value) : value]));
}
