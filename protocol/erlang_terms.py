"""Formats values as Erlang prints them, for RabbitMQ's error texts and the output of leveretctl."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal
from math import isfinite
from typing import Any, Final

_ESCAPES: Final = {
    0x08: "\\b", 0x09: "\\t", 0x0A: "\\n", 0x0B: "\\v", 0x0C: "\\f", 0x0D: "\\r", 0x1B: "\\e",
    0x22: '\\"', 0x5C: "\\\\",
}  # fmt: skip
_STRING_ESCAPES: Final = {**_ESCAPES, 0x7F: "\\d"}
_ATOM_ESCAPES: Final = {**_STRING_ESCAPES, ord('"'): '"', ord("'"): "\\'"}
#: An atom needs no quotes if it is a lowercase letter followed by these.
_ATOM_LETTERS: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@")

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


def format_text(text: str) -> str:
    """Return a text as ``~p`` prints the binary of its UTF-8 bytes, decoded again: ``<<"é">>``, ``<<195,132>>``."""
    octets = text.encode("utf-8", "surrogateescape")
    return format_binary(octets).encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape")


def format_unicode(text: str) -> str:
    """Return a text as ``~tp`` prints its binary: one that is not ASCII is marked, as in ``<<"é"/utf8>>``."""
    if not text:
        return "<<>>"
    return f"<<{format_string(text)}{'' if text.isascii() else '/utf8'}>>"


def format_string(text: str) -> str:
    """Return a text in double quotes."""
    return f'"{text.translate(_STRING_ESCAPES)}"'


def format_atom(name: str) -> str:
    """Return a name as an atom, in single quotes if it needs them."""
    if name[:1].isascii() and name[:1].islower() and _ATOM_LETTERS.issuperset(name):
        return name
    return f"'{name.translate(_ATOM_ESCAPES)}'"


def format_list(terms: Iterable[str]) -> str:
    """Return a list of formatted terms."""
    return f"[{','.join(terms)}]"


def format_tuple(*terms: str) -> str:
    """Return a tuple of formatted terms."""
    return f"{{{','.join(terms)}}}"


def format_json(value: Any) -> str:
    """Return a decoded JSON value as ``~p`` prints it, but always on one line."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "null"
    if isinstance(value, str):
        return format_text(value)
    if isinstance(value, Mapping):
        return f"#{{{','.join(f'{format_json(key)} => {format_json(each)}' for key, each in value.items())}}}"
    if isinstance(value, list | tuple):
        return format_list(map(format_json, value))
    return format_number(value)


def format_number(number: float) -> str:
    """Return an integer or a float."""
    return str(number) if isinstance(number, int) else format_float(number)


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
