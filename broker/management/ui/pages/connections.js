/** The list of connections. */

import { address } from "../parts/address.js";
import { clientState } from "../parts/client_state.js";
import { h, patch } from "../parts/element.js";
import { ago, bytes, dateTime, number, plain, shortBytes } from "../parts/format.js";
import { emptyState, heading } from "../parts/layout.js";
import { Table } from "../parts/table.js";
import { encryptionMark } from "./connection_encryption.js";

const COLUMNS = [
  { key: "vhost", label: "Virtual host", sort: "vhost", cell: ({ vhost }) => vhost },
  { key: "name", label: "Name", sort: "name", fields: ["name", "user_provided_name"], fixed: true, cell: name },
  { key: "user", label: "User", sort: "user", cell: ({ user }) => user },
  { key: "state", label: "State", sort: "state", cell: clientState },
  { key: "tls", label: "TLS", sort: "ssl", fields: ["ssl", "ssl_protocol", "ssl_cipher"], cell: encryptionMark },
  { key: "protocol", label: "Protocol", sort: "protocol", cell: ({ protocol }) => h("span", { class: "number" }, protocol) },
  { key: "channels", label: "Channels", numeric: true, sort: "channels", cell: ({ channels }) => number(channels) },
  dataColumn("recv_oct", "From client", "Bytes that the broker receives"),
  dataColumn("send_oct", "To client", "Bytes that the broker sends"),
  { key: "heartbeat", label: "Heartbeat", numeric: true, hidden: true, sort: "timeout", fields: ["timeout"], title: "Maximum time without data before the peer is considered dead", cell: heartbeat },
  { key: "client", label: "Client", sort: "client_properties.product", fields: ["client_properties"], cell: client },
  { key: "connected_at", label: "Connected", numeric: true, sort: "connected_at", cell: ({ connected_at: at }) => ago(at) },
  { key: "connected_on", label: "Connected at", hidden: true, sort: "connected_at", fields: ["connected_at"], cell: ({ connected_at: at }) => dateTime(at) },
  { key: "peer_host", label: "Peer host", hidden: true, sort: "peer_host", cell: ({ peer_host: host }) => host },
  { key: "peer_port", label: "Peer port", hidden: true, numeric: true, sort: "peer_port", cell: ({ peer_port: port }) => String(port) },
  { key: "auth_mechanism", label: "Auth mechanism", hidden: true, sort: "auth_mechanism", cell: ({ auth_mechanism: mechanism }) => mechanism },
  { key: "channel_max", label: "Channel max", hidden: true, numeric: true, sort: "channel_max", cell: ({ channel_max: most }) => number(most) },
  { key: "frame_max", label: "Frame max", hidden: true, numeric: true, sort: "frame_max", cell: ({ frame_max: most }) => bytes(most) },
  { key: "send_pend", label: "Waiting", hidden: true, numeric: true, sort: "send_pend", title: "Bytes that the client has not read yet", cell: ({ send_pend: waiting }) => bytes(waiting) },
];

function name({ name: full, user_provided_name: providedName }) {
  const link = h("a", { href: address("connections", full) }, full);
  return providedName === undefined ? link : [link, h("div", { class: "muted" }, providedName)];
}

function dataColumn(figure, label, title) {
  const path = `${figure}_details.rate`;
  const cell = (connection) => {
    const value = connection[`${figure}_details`]?.rate ?? 0;
    return h("span", { class: "number", title: `${value} bytes a second` }, `${shortBytes(value)}/s`);
  };
  return { key: figure, label, title, numeric: true, sort: path, fields: [path], cell };
}

function heartbeat({ timeout }) {
  return timeout > 0 ? `${timeout}s` : "off";
}

function client({ client_properties: properties = {} }) {
  const { product, version, platform } = properties;
  if (product === undefined) return null;
  const words = version === undefined ? plain(product) : `${plain(product)} ${plain(version)}`;
  return h("span", { class: "room", title: platform === undefined ? null : plain(platform) }, words);
}

function emptyList(context) {
  if (!context.user.may("monitoring")) return emptyState("You have no connections.", "The tag monitoring or administrator is required to see connections of other users.");
  return emptyState("No connections are open.", "Clients connect to the ports that the ", h("a", { href: address() }, "overview"), " lists.");
}

export default {
  title: () => "Connections",

  mount(context) {
    const table = new Table({
      id: "connections",
      columns: COLUMNS,
      needs: ["name"],
      rowKey: ({ name: full }) => full,
      load: (query) => context.api.get(context.vhost === "" ? ["connections"] : ["vhosts", context.vhost, "connections"], query),
      empty: () => emptyList(context),
    });
    patch(context.root, heading("Connections"), table.element);
    return () => table.refresh();
  },
};
