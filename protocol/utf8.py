"""UTF-8 as RabbitMQ checks it in short strings: the form of RFC 2279, in at most four bytes."""

from __future__ import annotations

from typing import Final

#: By first byte: how many bytes follow, and the least code point that needs so many.
_FORMS: Final = ((0xC0, 0xE0, 1, 0x80), (0xE0, 0xF0, 2, 0x800), (0xF0, 0xF8, 3, 0x10000))


def decode_utf8(octets: bytes) -> str:
    """Decode text that may also hold surrogates and code points above U+10FFFF, as Erlang's check allows.

    Returns:
        The text; what Python has no character for is kept as escaped bytes (surrogateescape).
    Raises:
        UnicodeDecodeError: Overlong, broken or longer sequences.
    """
    try:
        return octets.decode("utf-8")
    except UnicodeDecodeError:
        if not _is_well_formed(octets):
            raise
        return octets.decode("utf-8", "surrogateescape")


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
