"""TLS session and client certificate of a connection.

Source: RFC 4514 for the format of subjects, https://www.rabbitmq.com/docs/access-control#mechanisms for EXTERNAL
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

#: A distinguished name of the ssl module: relative names, each of one or more pairs.
_Name: TypeAlias = "Sequence[Sequence[tuple[str, str]]]"

#: Short names of attribute types.
_SHORT: Final = {
    "commonName": "CN",
    "countryName": "C",
    "domainComponent": "DC",
    "localityName": "L",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "serialNumber": "SERIALNUMBER",
    "stateOrProvinceName": "ST",
    "streetAddress": "STREET",
    "userId": "UID",
}
_ESCAPED: Final = frozenset(',+"\\<>;')


@dataclass(frozen=True, slots=True)
class TlsSession:
    """The TLS session of one connection.

    Attributes:
        protocol: TLS version, for example ``tlsv1.3``.
        cipher: The cipher suite.
        subject: Subject of the client certificate in RFC 4514 format; "" without a certificate.
        issuer: Issuer of the certificate, in the same format.
        validity: Start and end of the certificate's validity.
        common_name: Common name of the subject; "" if there is none.
        alternative_names: Subject alternative names, as pairs of type and value.
    """

    protocol: str
    cipher: str
    subject: str = ""
    issuer: str = ""
    validity: str = ""
    common_name: str = ""
    alternative_names: tuple[tuple[str, str], ...] = ()

    def login(self, source: str) -> str:
        """Return the user name for EXTERNAL.

        Args:
            source: distinguished_name, common_name or subject_alternative_name.
        Returns:
            The user name; "" if the certificate has none.
        """
        if source == "distinguished_name":
            return self.subject
        if source == "common_name":
            return self.common_name
        return next((value for kind, value in self.alternative_names if kind == "DNS"), "")


def tls_session(transport: asyncio.BaseTransport) -> TlsSession | None:
    """Return the TLS session of a transport; None without TLS."""
    found: ssl.SSLObject | None = transport.get_extra_info("ssl_object")
    if found is None:
        return None
    cipher = found.cipher()
    protocol, name = (found.version() or "").lower(), cipher[0] if cipher else ""
    certificate: dict[str, Any] = found.getpeercert() or {}
    if not certificate:
        return TlsSession(protocol, name)
    subject = certificate.get("subject", ())
    return TlsSession(
        protocol,
        name,
        format_name(subject),
        format_name(certificate.get("issuer", ())),
        f"{certificate.get('notBefore', '')} - {certificate.get('notAfter', '')}",
        next((value for part in subject for kind, value in part if kind == "commonName"), ""),
        tuple(certificate.get("subjectAltName", ())),
    )


def format_name(name: _Name) -> str:
    """Format a distinguished name as in RFC 4514, with the most specific part first.

    Args:
        name: Name from the ssl module, with the most general part first.
    """
    parts = ("+".join(f"{_SHORT.get(kind, kind)}={_escape(value)}" for kind, value in part) for part in reversed(name))
    return ",".join(parts)


def _escape(value: str) -> str:
    escaped = "".join(f"\\{each}" if each in _ESCAPED else each for each in value)
    if escaped[:1] in ("#", " "):
        escaped = "\\" + escaped
    if escaped.endswith(" ") and len(escaped) > 1:
        escaped = escaped[:-1] + "\\ "
    return escaped
