/** How a connection is encrypted. */

import { badge } from "../parts/badge.js";
import { h } from "../parts/element.js";
import { properties } from "../parts/layout.js";

/**
 * In words: version and cipher suite; "none" without encryption.
 *
 * @param {Object} connection as in the API; needs ssl, ssl_protocol, ssl_cipher
 * @returns {string}
 */
export function encryption({ ssl, ssl_protocol: protocol, ssl_cipher: cipher }) {
  return ssl ? `${String(protocol).replace(/^tls/, "TLS")}, ${cipher}` : "none";
}

/** As a mark, with the words on hover. @param {Object} connection as for encryption() */
export function encryptionMark(connection) {
  return connection.ssl ? badge("TLS", encryption(connection), "good") : h("span", { class: "muted", title: "The connection is not encrypted." }, "none");
}

/** The certificate that the client has shown; null without one. @param {Object} connection as in the API */
export function certificate({ peer_cert_subject: subject, peer_cert_issuer: issuer, peer_cert_validity: validity }) {
  return subject ? properties([["Subject", subject], ["Issuer", issuer], ["Valid", validity]]) : null;
}
