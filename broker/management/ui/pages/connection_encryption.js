/** TLS of a connection. */

import { badge } from "../parts/badge.js";
import { h } from "../parts/element.js";
import { properties } from "../parts/layout.js";

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
