"""What a TLS connection says of itself and its client.

Source: RFC 4514 for how subjects are written, https://www.rabbitmq.com/docs/access-control#mechanisms for EXTERNAL
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

#: A name as the ssl module gives it: parts, each of which may be several pairs.
_Name: TypeAlias = "Sequence[Sequence[tuple[str, str]]]"

#: Attribute types with short names; others keep the long one.
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
    """The TLS of one connection.

    Attributes:
        protocol: For example ``tlsv1.3``.
        cipher: The cipher suite.
        subject: Whom the client's certificate names, as RFC 4514 writes it; "" without a certificate.
        issuer: Who issued it.
        validity: From when to when it is valid.
        common_name: The common name of the subject; "" where there is none.
        alternative_names: Its subject alternative names, as type and value.
    """

    protocol: str
    cipher: str
    subject: str = ""
    issuer: str = ""
    validity: str = ""
    common_name: str = ""
    alternative_names: tuple[tuple[str, str], ...] = ()

    def login(self, source: str) -> str:
        """The user that EXTERNAL logs in.

        Args:
            source: distinguished_name, common_name or subject_alternative_name.
        Returns:
            Its name; "" if the certificate does not say.
        """
        if source == "distinguished_name":
            return self.subject
        if source == "common_name":
            return self.common_name
        return next((value for kind, value in self.alternative_names if kind == "DNS"), "")


def tls_session(transport: asyncio.BaseTransport) -> TlsSession | None:
    """The TLS of a connection; None without."""
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
    """A distinguished name as RFC 4514 writes it, the most specific part first.

    Args:
        name: As the ssl module gives it, the most general part first.
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
