"""TLS session and client certificate of a connection.

Names are written as RabbitMQ writes them, since users are called so. Python's names for the parts of a certificate are
those of OpenSSL, so the parts are read from the certificate itself.

Source: RFC 4514 for the format of subjects, https://www.rabbitmq.com/docs/access-control#mechanisms for EXTERNAL, and
RabbitMQ 3.10.8 observed.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias

#: A distinguished name, most general part first: relative names, each of one or more pairs of type and value.
Name: TypeAlias = "tuple[tuple[tuple[str, str], ...], ...]"

_COMMON_NAME: Final = "2.5.4.3"
#: RabbitMQ's names of attribute types; it prints the numbers of all others.
_TYPES: Final = {
    _COMMON_NAME: "CN",
    "2.5.4.4": "SN",
    "2.5.4.5": "SERIALNUMBER",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "2.5.4.12": "TITLE",
    "2.5.4.42": "GIVENNAME",
    "2.5.4.43": "INITIALS",
    "2.5.4.44": "GENERATIONQUALIFIER",
    "2.5.4.65": "PSEUDONYM",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
    "1.2.840.113549.1.9.1": "EMAILADDRESS",
}
_SEQUENCE: Final = 0x30
#: Encodings of texts by ASN.1 tag: UTF8String, UniversalString, BMPString; others have a byte for each character.
_ENCODINGS: Final = {0x0C: "utf-8", 0x1C: "utf-32-be", 0x1E: "utf-16-be"}
_ESCAPED: Final = frozenset(b',+"\\<>;')


@dataclass(frozen=True, slots=True)
class TlsSession:
    """The TLS session of one connection.

    Attributes:
        protocol: TLS version, for example ``tlsv1.3``.
        cipher: The cipher suite.
        subject: Subject of the client certificate, see format_name(); "" without one.
        issuer: Issuer of the certificate, in the same format.
        validity: Start and end of the certificate's validity.
        common_name: Common names of the subject, with commas between them; "" if there is none.
        alternative_names: Subject alternative names, as pairs of type and value.
        is_certified: Whether the client has presented a certificate.
    """

    protocol: str
    cipher: str
    subject: str = ""
    issuer: str = ""
    validity: str = ""
    common_name: str = ""
    alternative_names: tuple[tuple[str, str], ...] = ()
    is_certified: bool = False

    def login(self, source: str) -> str | None:
        """Return the user name for EXTERNAL.

        Args:
            source: distinguished_name, common_name or subject_alternative_name.
        Returns:
            The user name; None if the certificate has none of this kind. A distinguished name may be empty.
        """
        if source == "distinguished_name":
            return self.subject
        if source == "common_name":
            return self.common_name or None
        return next((value for kind, value in self.alternative_names if kind == "DNS"), None)


def tls_session(transport: asyncio.BaseTransport) -> TlsSession | None:
    """Return the TLS session of a transport; None without TLS."""
    found: ssl.SSLObject | None = transport.get_extra_info("ssl_object")
    if found is None:
        return None
    cipher = found.cipher()
    protocol, name = (found.version() or "").lower(), cipher[0] if cipher else ""
    certificate: dict[str, Any] = found.getpeercert() or {}
    octets = found.getpeercert(binary_form=True)
    if not certificate or octets is None:
        return TlsSession(protocol, name)
    issuer, subject = read_names(octets)
    return TlsSession(
        protocol,
        name,
        format_name(subject),
        format_name(issuer),
        f"{_time(certificate['notBefore'])} - {_time(certificate['notAfter'])}",
        # As in RabbitMQ, several are joined.
        ",".join(value for part in subject for kind, value in part if kind == _COMMON_NAME),
        tuple(certificate.get("subjectAltName", ())),
        is_certified=True,
    )


def format_name(name: Name) -> str:
    """Format a distinguished name as RabbitMQ does, with the most specific part first."""
    parts = ("+".join(f"{_TYPES.get(kind, kind)}={_escape(value)}" for kind, value in part) for part in reversed(name))
    return ",".join(parts)


def _escape(value: str) -> str:
    octets = value.encode()
    last = len(octets) - 1
    return "".join(_escape_octet(octet, at == 0, at == last) for at, octet in enumerate(octets))


def _escape_octet(octet: int, is_first: bool, is_last: bool) -> str:
    if octet < 32 or octet >= 126:
        return f"\\{octet:02X}"
    character = chr(octet)
    special = octet in _ESCAPED or (is_first and character in " #") or (is_last and character == " ")
    return f"\\{character}" if special else character


def _time(text: str) -> str:
    """Return a time of the ssl module as in ISO 8601."""
    return datetime.fromtimestamp(ssl.cert_time_to_seconds(text), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def read_names(certificate: bytes) -> tuple[Name, Name]:
    """Return the issuer and the subject of a certificate.

    Args:
        certificate: The certificate, which has been checked, in DER.
    """
    _, whole = next(_items(certificate))
    _, signed = next(_items(whole))
    # The algorithm of the signature, the issuer, the validity, the subject, and the key.
    sequences = [octets for tag, octets in _items(signed) if tag == _SEQUENCE]
    return _read_name(sequences[1]), _read_name(sequences[3])


def _read_name(octets: bytes) -> Name:
    return tuple(tuple(_read_pair(pair) for _, pair in _items(part)) for _, part in _items(octets))


def _read_pair(octets: bytes) -> tuple[str, str]:
    (_, kind), (tag, value) = _items(octets)
    return _dotted(kind), value.decode(_ENCODINGS.get(tag, "latin-1"), "replace")


def _items(octets: bytes) -> Iterator[tuple[int, bytes]]:
    """Iterate over the tags and contents of DER items that follow each other."""
    at = 0
    while at < len(octets):
        tag, length, at = octets[at], octets[at + 1], at + 2
        if length & 0x80:
            start, at = at, at + (length & 0x7F)
            length = int.from_bytes(octets[start:at])
        yield tag, octets[at : at + length]
        at += length


def _dotted(octets: bytes) -> str:
    """Return an object identifier in dotted notation."""
    numbers, number = [], 0
    for octet in octets:
        number = number << 7 | (octet & 0x7F)
        if not octet & 0x80:
            numbers.append(number)
            number = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))
