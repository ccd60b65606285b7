/** The list of connections. */

import { address } from "../parts/address.js";
import { badge, clientState } from "../parts/badge.js";
import { listColumns } from "../parts/columns.js";
import { h, patch } from "../parts/element.js";
import { plain } from "../parts/format.js";
import { emptyState, heading, properties } from "../parts/layout.js";
import { Table } from "../parts/table.js";

const COLUMNS = listColumns("connections", { name, state: clientState, tls: encryptionMark, heartbeat, client });

function name({ name: full, user_provided_name: providedName }) {
  const link = h("a", { href: address("connections", full) }, full);
  return providedName === undefined ? link : [link, h("div", { class: "muted" }, providedName)];
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

/**
 * Return TLS version and cipher suite as text, "none" without encryption.
 *
 * @param {Object} connection connection object of the API; needs ssl, ssl_protocol, ssl_cipher
 * @returns {string}
 */
export function encryption({ ssl, ssl_protocol: protocol, ssl_cipher: cipher }) {
  return ssl ? `${String(protocol).replace(/^tls/, "TLS")}, ${cipher}` : "none";
}

/** Make a badge with the text on hover. @param {Object} connection as for encryption() */
export function encryptionMark(connection) {
  return connection.ssl ? badge("TLS", encryption(connection), "good") : h("span", { class: "muted", title: "The connection is not encrypted." }, "none");
}

/** Make the description of the client certificate; null without one. @param {Object} connection connection object of the API */
export function certificate({ peer_cert_subject: subject, peer_cert_issuer: issuer, peer_cert_validity: validity }) {
  return subject ? properties([["Subject", subject], ["Issuer", issuer], ["Valid", validity]]) : null;
}
