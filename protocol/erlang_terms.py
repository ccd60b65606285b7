"""Formats values as Erlang prints them, as they appear in RabbitMQ's error texts."""

from __future__ import annotations

from decimal import Decimal
from math import isfinite
from typing import Final

_ESCAPES: Final = {
    0x08: "\\b", 0x09: "\\t", 0x0A: "\\n", 0x0B: "\\v", 0x0C: "\\f", 0x0D: "\\r", 0x1B: "\\e",
    0x22: '\\"', 0x5C: "\\\\",
}  # fmt: skip

#: From here on floats cannot represent every integer, and Erlang prints them with an exponent.
_EXACT: Final = float(1 << 53)


def _printable(octet: int) -> bool:
    return 0x20 <= octet <= 0x7E or octet >= 0xA0 or octet in _ESCAPES


def _character(octet: int) -> str:
    """Return the octet as a character: above ASCII a surrogate, which surrogateescape encodes as that octet."""
    return chr(octet) if octet < 0x80 else chr(0xDC00 + octet)


def format_binary(octets: bytes) -> str:
    """Return a binary as Erlang's ``~p`` prints it.

    Args:
        octets: Any bytes.
    Returns:
        ``<<>>``, ``<<"abc">>`` where every byte is printable Latin-1, else ``<<0,20,0>>``. Latin-1
        bytes become surrogates: encode the text with surrogateescape.
    """
    if not octets:
        return "<<>>"
    if all(map(_printable, octets)):
        return '<<"' + "".join(_ESCAPES.get(octet) or _character(octet) for octet in octets) + '">>'
    return format_octets(octets)


def format_octets(octets: bytes) -> str:
    """Return a binary as Erlang's ``~w`` prints it: always as numbers."""
    return "<<" + ",".join(map(str, octets)) + ">>"


def format_float(number: float) -> str:
    """Return a float as Erlang prints it: the shortest digits, always with a fraction.

    It has an exponent from 2^53 on, and where that is shorter: ``1000.5``, but ``1.0e3``.
    """
    if number == 0 or not isfinite(number):
        return repr(number)
    sign, digit_tuple, exponent = Decimal(repr(number)).normalize().as_tuple()
    assert isinstance(exponent, int)
    digits = "".join(map(str, digit_tuple))
    point = len(digits) + exponent
    scientific = f"{digits[0]}.{digits[1:] or '0'}e{point - 1}"
    before, behind = (digits[:point].ljust(point, "0"), digits[point:]) if point > 0 else ("0", "0" * -point + digits)
    plain = f"{before}.{behind or '0'}"
    shown = scientific if abs(number) >= _EXACT or len(scientific) < len(plain) else plain
    return f"-{shown}" if sign else shown
