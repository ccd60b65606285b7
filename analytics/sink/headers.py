"""Makes field tables of the columns `headers` and `headers_json`."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Collection, Iterable
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from leveret.analytics.times import microseconds
from leveret.protocol.constants import INT64_END, SHORTSTR_MAX
from leveret.protocol.field_table import FieldTable, FieldValue, longstr

#: Type letters by the names in `headers_json`.
_LETTERS: Final = {
    "bool": "t", "int8": "b", "uint8": "B", "int16": "s", "uint16": "u", "int32": "I", "uint32": "i", "int64": "l",
    "float": "f", "double": "d", "timestamp": "T",
}  # fmt: skip
_DEATHS: Final = "x-death"
#: Headers that dead-lettering adds.
DEATH_HEADERS: Final = frozenset(
    (_DEATHS, *(f"x-{which}-death-{what}" for which in ("first", "last") for what in ("reason", "queue", "exchange")))
)
_DEPTH_MAX: Final = 64


def table_of_map(
    entries: Iterable[tuple[str, Any]] | dict[str, Any] | None, left_out: Collection[str] = ()
) -> FieldTable:
    """Return the headers of a map or struct, without x-death, whose table is text there.

    Args:
        entries: Names and values.
        left_out: Names of headers that are left out, too.
    Raises:
        ValueError: A name or value does not fit into a header.
    """
    if entries is None:
        return ()
    pairs = entries.items() if isinstance(entries, dict) else entries
    return tuple((_name(name), _field(value)) for name, value in pairs if name != _DEATHS and name not in left_out)


def table_of_json(text: str | None, left_out: Collection[str] = ()) -> FieldTable:
    """Return the headers of a JSON object, whose values may have types as in the table `messages`.

    Args:
        text: The object.
        left_out: Names of headers that are left out.
    Raises:
        ValueError: It is not a JSON object, or a name or value does not fit into a header.
    """
    if text is None:
        return ()
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise ValueError("headers_json is not a JSON object")
    return tuple((_name(name), _field(value)) for name, value in found.items() if name not in left_out)


def _name(name: str) -> str:
    if len(name.encode()) > SHORTSTR_MAX:
        raise ValueError(f"header {name[:32]}… has a name of more than {SHORTSTR_MAX} bytes")
    return name


def _field(value: Any, depth: int = 0) -> FieldValue:
    """Return a value of a header; an object with `type` and `value` has that type."""
    if depth > _DEPTH_MAX:
        raise ValueError(f"headers are nested deeper than {_DEPTH_MAX} levels")
    if isinstance(value, dict):
        if value.keys() == {"type", "value"} and isinstance(value["type"], str):
            return _typed(value["type"], value["value"], depth)
        return FieldValue("F", tuple((_name(name), _field(each, depth + 1)) for name, each in value.items()))
    if isinstance(value, list):
        return FieldValue("A", tuple(_field(each, depth + 1) for each in value))
    return _single(value)


def _single(value: Any) -> FieldValue:
    if value is None:
        return FieldValue("V", None)
    if isinstance(value, bool):
        return FieldValue("t", value)
    if isinstance(value, int):
        return _number("int64", "l", value)
    if isinstance(value, float):
        return _number("double", "d", value)
    if isinstance(value, bytes):
        return FieldValue("x", value)
    if isinstance(value, datetime):
        return _number("timestamp", "T", microseconds(value) // 1_000_000)
    if isinstance(value, str | Decimal | date):
        return longstr(str(value))
    raise ValueError(f"a header cannot have a value of type {type(value).__name__}")


def _typed(kind: str, value: Any, depth: int) -> FieldValue:
    if kind in _LETTERS:
        return _number(kind, _LETTERS[kind], value)
    if kind == "longstr" and isinstance(value, str):
        return longstr(value)
    if kind == "binary" and isinstance(value, str):
        return FieldValue("x", _octets(value))
    if kind == "decimal" and isinstance(value, str):
        return _decimal(value)
    if kind == "array" and isinstance(value, list):
        return FieldValue("A", tuple(_field(each, depth + 1) for each in value))
    if kind == "table" and isinstance(value, dict):
        return FieldValue("F", tuple((_name(name), _field(each, depth + 1)) for name, each in value.items()))
    if kind == "void":
        return FieldValue("V", None)
    raise ValueError(f"a header has the type {kind} and the value {json.dumps(value)[:64]}")


def _number(kind: str, letter: str, value: Any) -> FieldValue:
    is_right = isinstance(value, bool) if kind == "bool" else isinstance(value, int) and not isinstance(value, bool)
    if kind in ("float", "double"):
        is_right = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    elif is_right and kind != "bool":
        least, end = _range_of(kind)
        is_right = least <= value < end
    if not is_right:
        raise ValueError(f"a header has the type {kind} and the value {value}")
    return FieldValue(letter, value)


def _range_of(kind: str) -> tuple[int, int]:
    if kind == "timestamp":
        return 0, INT64_END
    bits = int(kind.lstrip("uint"))
    return (0, 1 << bits) if kind[0] == "u" else (-(1 << bits - 1), 1 << bits - 1)


def _octets(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        raise ValueError(f"a header has the type binary and the value {text[:64]}, which is not base64") from None


def _decimal(text: str) -> FieldValue:
    try:
        sign, digits, exponent = Decimal(text).as_tuple()
    except InvalidOperation:
        raise ValueError(f"a header has the type decimal and the value {text[:64]}") from None
    if not isinstance(exponent, int) or not -255 <= exponent <= 0:
        raise ValueError(f"a header has the type decimal and the value {text[:64]}")
    unscaled = int("".join(map(str, digits))) * (-1 if sign else 1)
    if not -(1 << 31) <= unscaled < 1 << 31:
        raise ValueError(f"a header has the type decimal and the value {text[:64]}, which has too many digits")
    return FieldValue("D", (-exponent, unscaled & 0xFFFFFFFF))
