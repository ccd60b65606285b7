/** Page of a connection. */

import { address } from "../parts/address.js";
import { clientState } from "../parts/badge.js";
import { Chart } from "../parts/chart.js";
import { confirmAction } from "../parts/dialog.js";
import { h, patch } from "../parts/element.js";
import { Form } from "../parts/form.js";
import { ago, bytes, number, plain, shortBytes } from "../parts/format.js";
import { emptyState, heading, properties, section } from "../parts/layout.js";
import { RangeChoice, rates } from "../parts/series.js";
import { Table } from "../parts/table.js";
import { channelColumns } from "./channels.js";
import { certificate, encryption } from "./connections.js";

const DATA = [
  ["recv_oct", "From client", "bytes that the broker receives"],
  ["send_oct", "To client", "bytes that the broker sends"],
];
const WARNINGS = {
  blocked: "A resource alarm is set and this connection publishes. The broker does not read from it until the alarm clears.",
  blocking: "A resource alarm is set: this connection will be blocked as soon as it publishes.",
  flow: "This connection publishes faster than the broker can handle and is slowed down.",
};

export default {
  title: ({ name }) => `Connection ${name}`,

  mount(context) {
    const { api, params, root, user } = context;
    const range = new RangeChoice(() => context.refresh());
    const data = new Chart({ title: "Data rates", format: (value) => `${shortBytes(value)}/s`, base: 1024 });
    const channels = channelTable(context);
    const close = closeForm(context);
    patch(root, heading(["Connection ", params.name]));

    return async () => {
      const [connection] = await Promise.all([api.get(["connections", params.name], range.query), channels.refresh()]);
      data.update(DATA.map(([name, label, title]) => ({ label, title, points: rates(connection[`${name}_details`]) })));
      patch(
        root,
        heading(["Connection ", connection.name, " ", h("small", null, connection.user_provided_name)], range.element),
        warning(connection.state),
        h("div", { class: "charts" }, data.element, details(connection, user)),
        section("Channels", channels.element),
        section("Client", clientProperties(connection.client_properties)),
        user.may("administrator") || connection.user === user.name ? section("Close this connection", close.element) : null,
      );
    };
  },
};

function warning(state) {
  return state in WARNINGS ? h("p", { class: "notice warning", key: "warning" }, WARNINGS[state]) : null;
}

function channelTable(context) {
  return new Table({
    id: "connection channels",
    caption: "channels",
    filtered: false,
    columns: channelColumns({ within: "connection" }),
    needs: ["name", "number"],
    rowKey: ({ number: of }) => String(of),
    load: (query) => context.api.get(["connections", context.params.name, "channels"], query),
    empty: () => emptyState("The connection has no channel.", "The client opens one before it publishes, consumes or declares anything."),
  });
}

function details(connection, user) {
  const { peer_host: peer, peer_port: peerPort, host, port } = connection;
  return properties([
    ["State", clientState(connection)],
    ["User", user.may("administrator") ? h("a", { href: address("users", connection.user) }, connection.user) : connection.user],
    ["Virtual host", connection.vhost],
    ["Connected", ago(connection.connected_at)],
    ["Peer", `${peer}:${peerPort}`, "Address of the client"],
    ["Local", `${host}:${port}`, "Address of the broker"],
    ["Protocol", connection.protocol],
    ["Authentication", connection.auth_mechanism],
    ["TLS", encryption(connection)],
    ["Peer certificate", certificate(connection)],
    ["Heartbeat", connection.timeout > 0 ? `${connection.timeout}s` : "off", "Maximum time without data before the peer is considered dead"],
    ["Frame max", bytes(connection.frame_max)],
    ["Channel max", number(connection.channel_max)],
    ["Received", bytes(connection.recv_oct)],
    ["Sent", bytes(connection.send_oct)],
    ["Waiting to be sent", connection.send_pend > 0 ? bytes(connection.send_pend) : null, "Bytes that the client has not read yet"],
  ]);
}

/** Maximum length: reply texts are short strings, and the broker adds a prefix. */
const REASON_BYTES = 200;

/**
 * Make the form that closes the connection of the page.
 *
 * @param {Object} context of the page
 * @returns {Form}
 */
export function closeForm(context) {
  return new Form({
    fields: [{ name: "reason", label: "Reason", hint: "The reason is sent to the client. Most clients reconnect automatically.", value: "Closed via management plugin", check: checkReason }],
    submit: "Close …",
    keep: true,
    action: ({ reason }) => close(context, reason),
  });
}

function checkReason(reason) {
  return octets(reason).length > REASON_BYTES ? `This must be ${REASON_BYTES} bytes or less.` : null;
}

async function close({ api, params, navigate, notify }, reason) {
  const isDone = await confirmAction({
    title: "Close connection",
    name: params.name,
    text: "Its channels and consumers are closed; unacknowledged messages are requeued.",
    verb: "Close",
    action: () => api.delete(["connections", params.name], {}, reason === "" ? {} : { "X-Reason": octets(reason) }),
  });
  if (!isDone) return;
  notify(`Connection ${params.name} has been closed.`);
  navigate(address("connections"));
}

/** Encode text as UTF-8 for a header: each byte becomes the character with its code. */
function octets(text) {
  return String.fromCharCode(...new TextEncoder().encode(text));
}

/** Properties that are shown first; others follow in the client's order. */
const FIRST = ["connection_name", "product", "version", "platform"];

/**
 * Make the list of the client properties of a connection, with its capabilities.
 *
 * @param {Object<string, *>} [table] as in the API
 * @returns {HTMLElement}
 */
export function clientProperties(table = {}) {
  const { capabilities, ...others } = table;
  const names = [...FIRST.filter((name) => name in others), ...Object.keys(others).filter((name) => !FIRST.includes(name))];
  const rows = names.map((name) => [name.replaceAll("_", " "), plain(others[name]), name]);
  if (capabilities !== undefined) rows.push(["capabilities", capabilityList(capabilities), "Protocol extensions that the client supports"]);
  return rows.length === 0 ? emptyState("The client has sent no properties.") : properties(rows);
}

function capabilityList(capabilities) {
  if (capabilities === null || typeof capabilities !== "object" || Array.isArray(capabilities)) return plain(capabilities);
  const entries = Object.entries(capabilities);
  if (entries.length === 0) return h("span", { class: "muted" }, "none");
  return h("ul", { class: "capabilities" }, entries.map(([name, value]) => h("li", { key: name }, ...capability(name, value))));
}

function capability(name, value) {
  if (value === true) return [h("span", { class: "good", "aria-hidden": "true" }, "✓\u00a0"), name];
  if (value === false) return [h("span", { class: "muted", "aria-hidden": "true" }, "✗\u00a0"), h("span", { class: "muted" }, `${name}: no`)];
  return [`${name}: ${plain(value)}`];
}
