"""Short strings: at most 255 bytes with a length octet in front (spec 4.2.5.3), and RabbitMQ's kind of UTF-8."""

from __future__ import annotations

import re
from typing import Final

#: Range of the first byte, number of bytes that follow, and the smallest code point of that length.
_FORMS: Final = ((0xC0, 0xE0, 1, 0x80), (0xE0, 0xF0, 2, 0x800), (0xF0, 0xF8, 3, 0x10000))

#: What is one character to Erlang, or one byte that is part of none, as surrogate escapes; and unpaired surrogates.
_NOT_UTF8: Final = re.compile(
    r"[\udcc0-\udcdf][\udc80-\udcbf]?|[\udce0-\udcef][\udc80-\udcbf]{0,2}|[\udcf0-\udcf7][\udc80-\udcbf]{0,3}"
    r"|[\ud800-\udfff]"
)


def encode_shortstr(text: str | bytes) -> bytes:
    """Encode a short string.

    Raises:
        ValueError: It is longer than 255 bytes.
    """
    octets = text.encode("utf-8", "surrogateescape") if isinstance(text, str) else text
    return bytes((len(octets),)) + octets


def decode_utf8(octets: bytes) -> str:
    """Decode text that may contain surrogates and code points above U+10FFFF, which Erlang's check allows.

    Returns:
        The text; code points that Python does not have are escaped bytes (surrogateescape).
    Raises:
        UnicodeDecodeError: A sequence is overlong, truncated or longer than four bytes.
    """
    try:
        return octets.decode("utf-8")
    except UnicodeDecodeError:
        if not _is_well_formed(octets):
            raise
        return octets.decode("utf-8", "surrogateescape")


def replace_escapes(text: str) -> str:
    """Return a text with U+FFFD for surrogate escapes, as RabbitMQ's JSON has it, for outputs that must be UTF-8."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return _NOT_UTF8.sub("\ufffd", text)
    return text


def _is_well_formed(octets: bytes) -> bool:
    position = 0
    while position < len(octets):
        first = octets[position]
        position += 1
        if first < 0x80:
            continue
        form = next((form for form in _FORMS if form[0] <= first < form[1]), None)
        if form is None:
            return False
        low, high, following, least = form
        code_point = first & (high - low - 1)
        sequence = octets[position : position + following]
        if len(sequence) < following or any(octet & 0xC0 != 0x80 for octet in sequence):
            return False
        for octet in sequence:
            code_point = code_point << 6 | octet & 0x3F
        if code_point < least:
            return False
        position += following
    return True
