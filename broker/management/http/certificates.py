"""Expiry times of certificates.

The ssl module reads the expiry time of a peer's certificate only, so the field is parsed here.

Source: RFC 5280 section 4.1 (certificates), ITU-T X.690 (DER)
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

_PEM: Final = re.compile(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)
_VERSION: Final = 0xA0
_UTC_TIME: Final = 0x17
#: Fields of TBSCertificate before the validity: serial number, signature, issuer.
_BEFORE_VALIDITY: Final = 3


def valid_until(path: Path) -> list[datetime]:
    """Return the expiry times of the certificates in a file, in file order.

    Args:
        path: A PEM file; keys in it are skipped.
    Raises:
        OSError: The file cannot be read.
        ValueError: A certificate in it is malformed.
    """
    return [_not_after(ssl.PEM_cert_to_DER_cert(pem)) for pem in _PEM.findall(path.read_text("ascii", "replace"))]


def _not_after(certificate: bytes) -> datetime:
    [(_, outer)] = _elements(certificate)
    _, signed = next(_elements(outer))
    fields = _elements(signed)
    tag, _ = first = next(fields)
    rest = [*([] if tag == _VERSION else [first]), *fields]
    (_, _), (tag, end) = _elements(rest[_BEFORE_VALIDITY][1])
    text = end.decode("ascii")
    # Two-digit years are 1950 to 2049.
    if tag == _UTC_TIME:
        text = ("20" if text < "5" else "19") + text
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)


def _elements(octets: bytes) -> Iterator[tuple[int, bytes]]:
    """Iterate over the DER elements of a sequence: tag and content."""
    at = 0
    while at < len(octets):
        if at + 2 > len(octets):
            raise ValueError("the certificate ends in the middle of an element")
        tag, size = octets[at], octets[at + 1]
        at += 2
        if size & 0x80:
            digits = size & 0x7F
            size = int.from_bytes(octets[at : at + digits])
            at += digits
        if at + size > len(octets):
            raise ValueError("the certificate ends in the middle of an element")
        yield tag, octets[at : at + size]
        at += size
