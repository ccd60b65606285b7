"""Short strings: at most 255 bytes, with a length octet in front (spec section 4.2.5.3)."""

from __future__ import annotations


def encode_shortstr(text: str | bytes) -> bytes:
    """Encode a short string.

    Raises:
        ValueError: It is longer than 255 bytes.
    """
    octets = text.encode("utf-8", "surrogateescape") if isinstance(text, str) else text
    return bytes((len(octets),)) + octets
