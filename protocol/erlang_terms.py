"""Erlang's way of printing values, which RabbitMQ's error texts contain and people search for."""

from __future__ import annotations

from typing import Final

_ESCAPES: Final = {
    0x08: "\\b", 0x09: "\\t", 0x0A: "\\n", 0x0B: "\\v", 0x0C: "\\f", 0x0D: "\\r", 0x1B: "\\e",
    0x22: '\\"', 0x5C: "\\\\",
}  # fmt: skip


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
    """A float as Erlang prints it: shortest digits, always with a fraction."""
    text = repr(number)
    mantissa, mark, exponent = text.partition("e")
    if "." not in mantissa and mantissa.lstrip("-").isdigit():
        mantissa += ".0"
    return mantissa + mark + exponent.replace("+", "")
