"""Erlang's way of printing values, which RabbitMQ's error texts contain and people search for."""

from __future__ import annotations

from decimal import Decimal
from math import isfinite
from typing import Final

_ESCAPES: Final = {
    0x08: "\\b", 0x09: "\\t", 0x0A: "\\n", 0x0B: "\\v", 0x0C: "\\f", 0x0D: "\\r", 0x1B: "\\e",
    0x22: '\\"', 0x5C: "\\\\",
}  # fmt: skip

#: From here on floats skip integers, and Erlang does not pretend otherwise.
_EXACT: Final = float(1 << 53)


def _printable(octet: int) -> bool:
    return 0x20 <= octet <= 0x7E or octet >= 0xA0 or octet in _ESCAPES


def _character(octet: int) -> str:
    """The octet as it is: above ASCII a surrogate, which is encoded as that very octet again."""
    return chr(octet) if octet < 0x80 else chr(0xDC00 + octet)


def format_binary(octets: bytes) -> str:
    """A binary as Erlang's ``~p`` prints it.

    Args:
        octets: Any bytes.
    Returns:
        ``<<>>``, ``<<"abc">>`` where every byte is printable Latin-1, else ``<<0,20,0>>``. Latin-1
        bytes stay bytes: the text is meant to be encoded with surrogateescape.
    """
    if not octets:
        return "<<>>"
    if all(map(_printable, octets)):
        return '<<"' + "".join(_ESCAPES.get(octet) or _character(octet) for octet in octets) + '">>'
    return format_octets(octets)


def format_octets(octets: bytes) -> str:
    """A binary as Erlang's ``~w`` prints it: numbers, whatever they mean."""
    return "<<" + ",".join(map(str, octets)) + ">>"


def format_float(number: float) -> str:
    """A float as Erlang prints it: shortest digits, always with a fraction.

    From 2^53 on, and wherever that is shorter, with an exponent: ``1000.5``, but ``1.0e3``.
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
