"""Makes messages of rows."""

from __future__ import annotations

import base64
import json
import math
import struct
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any, Final

import pyarrow as pa

from leveret.analytics.columns import PROPERTIES, TABLES, VALUE_COLUMNS
from leveret.analytics.errors import AnalyticsError
from leveret.analytics.sink.connection import Encoded
from leveret.analytics.times import microseconds
from leveret.protocol.constants import INT64_END, SHORTSTR_MAX
from leveret.protocol.field_table import FieldTable, FieldValue, longstr
from leveret.protocol.properties import DELIVERY_MODE, FLAGS, HEADERS, encode_content_header, encode_headers
from leveret.protocol.short_strings import encode_shortstr

#: Whole numbers by their names in `headers_json`: the type's letter, the least one, and the first that is too large.
_WHOLE: Final = {
    "int8": ("b", -(1 << 7), 1 << 7), "int16": ("s", -(1 << 15), 1 << 15), "int32": ("I", -(1 << 31), 1 << 31),
    "int64": ("l", -INT64_END, INT64_END), "uint8": ("B", 0, 1 << 8), "uint16": ("u", 0, 1 << 16),
    "uint32": ("i", 0, 1 << 32), "timestamp": ("T", 0, INT64_END),
}  # fmt: skip
_FRACTIONS: Final = {"float": "f", "double": "d"}
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

    Raises:
        ValueError: A name or value does not fit into a header.
    """
    if entries is None:
        return ()
    pairs = entries.items() if isinstance(entries, dict) else entries
    return tuple((_name(name), _field(value)) for name, value in pairs if name != _DEATHS and name not in left_out)


def table_of_json(text: str | None, left_out: Collection[str] = ()) -> FieldTable:
    """Return the headers of a JSON object, whose values may have types as in the table `messages`.

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
        return _number("int64", value)
    if isinstance(value, float):
        return _number("double", value)
    if isinstance(value, bytes):
        return FieldValue("x", value)
    if isinstance(value, datetime):
        return _number("timestamp", microseconds(value) // 1_000_000)
    if isinstance(value, str | Decimal | date):
        return longstr(str(value))
    raise ValueError(f"a header cannot have a value of type {type(value).__name__}")


def _typed(kind: str, value: Any, depth: int) -> FieldValue:
    if kind == "bool" or kind in _WHOLE or kind in _FRACTIONS:
        return _number(kind, value)
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


def _number(kind: str, value: Any) -> FieldValue:
    if isinstance(value, bool):
        if kind == "bool":
            return FieldValue("t", value)
    elif kind in _FRACTIONS and isinstance(value, int | float) and math.isfinite(value):
        return FieldValue(_FRACTIONS[kind], value)
    elif kind in _WHOLE and isinstance(value, int):
        letter, least, end = _WHOLE[kind]
        if least <= value < end:
            return FieldValue(letter, value)
    raise ValueError(f"a header has the type {kind} and the value {value}")


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


#: The header by which an exchange drops duplicates.
KEY_HEADER: Final = "x-deduplication-header"
#: The columns of the table `messages` that are the key of a row.
ROW_KEY: Final = ("queue_id", "store_priority", "seq")
#: A broker refuses larger ones, with an error that ends the query: ten years in milliseconds.
_EXPIRATION_MAX: Final = 315_360_000_000
_U64: Final = struct.Struct(">Q")
_TEXT: Final = frozenset({"string"})
_INTEGERS: Final = frozenset({"tinyint", "smallint", "int", "bigint"})
_BYTES: Final = frozenset({"binary"})
_TIMES: Final = frozenset({"timestamp", "timestamp_ntz"}) | _INTEGERS
#: Types that columns may have, by name.
_TYPES: Final[dict[str, frozenset[str]]] = {
    "body": _TEXT | _BYTES,
    "routing_key": _TEXT,
    "key": _TEXT | _BYTES | _INTEGERS,
    "headers": frozenset({"map", "struct"}),
    "headers_json": _TEXT,
    "persistent": frozenset({"boolean"}),
    **{name: {"int": _INTEGERS, "timestamp": _TIMES, "string": _TEXT}[kind] for name, kind in PROPERTIES.items()},
    **dict.fromkeys(ROW_KEY, _INTEGERS),
}
#: Columns of the table `messages` that say where a message was: they are not published.
_PLACES: Final = frozenset(TABLES["messages"]) - _TYPES.keys()


@dataclass(frozen=True, slots=True)
class RowLayout:
    """The columns of rows that are published.

    Attributes:
        columns: Names of the columns that make the message.
        routing_key: Routing key of all rows as an encoded short string; None to take that of the row.
        key: Names of the columns that make the value of x-deduplication-header; empty for none.
        left_out: Names of headers that are not published.
    """

    columns: frozenset[str]
    routing_key: bytes | None
    key: tuple[str, ...]
    left_out: frozenset[str] = frozenset()


def row_layout(types: Mapping[str, str], routing_key: str | None, keeps_deaths: bool = False) -> RowLayout:
    """Return how rows become messages.

    Args:
        types: Spark types of the columns by name, such as `map<string,string>`.
        routing_key: Routing key of all rows; None to take that of the row.
        keeps_deaths: Whether the headers that dead-lettering adds are published, too.
    Raises:
        AnalyticsError: A column is missing, unknown or of another type.
    """
    for name, kind in types.items():
        allowed = _TYPES.get(name)
        if allowed is None and name in VALUE_COLUMNS:
            raise AnalyticsError(
                f"the sink does not publish column {name}, which is for reading bodies: drop it, or make the body of "
                "it where it was read, such as .where('value_error is null').withColumn('body', to_json('value'))"
                ".drop('value', 'value_error')"
            )
        if allowed is None and name not in _PLACES:
            raise AnalyticsError(f"the sink does not know column {name}; it publishes {', '.join(_TYPES)}")
        if allowed is not None and kind.partition("<")[0] not in allowed:
            raise AnalyticsError(f"column {name} is {kind}, the sink takes {' or '.join(sorted(allowed))}")
    if "body" not in types:
        raise AnalyticsError("the sink needs a column body, binary or string")
    if "headers" in types and "headers_json" in types:
        raise AnalyticsError("drop one of the columns headers and headers_json: only one of them can be published")
    if "key" in types:
        key: tuple[str, ...] = ("key",)
    else:
        key = ROW_KEY if types.keys() >= set(ROW_KEY) else ()
    columns = frozenset(types) & _TYPES.keys()
    left_out = frozenset[str]() if keeps_deaths else DEATH_HEADERS
    return RowLayout(columns, None if routing_key is None else encode_shortstr(routing_key), key, left_out)


class RowEncoder:
    """Makes messages of the rows of record batches."""

    def __init__(self, layout: RowLayout) -> None:
        self._layout = layout

    def messages(self, batch: pa.RecordBatch) -> Iterator[Encoded | ValueError]:
        """Iterate over the messages of a batch; a row that cannot be published is the reason."""
        columns = {name: _values(batch.column(name)) for name in batch.schema.names if name in self._layout.columns}
        encode = self._encoders(columns)
        for row in range(batch.num_rows):
            try:
                yield encode(row)
            except (ValueError, OverflowError, struct.error) as error:
                yield error if isinstance(error, ValueError) else ValueError(str(error))

    def _encoders(self, columns: Mapping[str, Sequence[Any]]) -> Callable[[int], Encoded]:
        """Return the function that makes the message of a row."""
        layout, bodies, keys = self._layout, columns["body"], columns.get("routing_key")
        properties = [
            (flag, name, _PROPERTY[name], columns[name])
            for flag, name in FLAGS
            if name in columns and name in _PROPERTY
        ]
        has_mode, persistent = "delivery_mode" in columns, columns.get("persistent")
        tables = self._tables(columns)

        def encode(row: int) -> Encoded:
            values: dict[int, bytes] = {}
            for flag, name, convert, column in properties:
                if (value := column[row]) is not None:
                    values[flag] = convert(name, value)
            if not has_mode:
                values[DELIVERY_MODE] = b"\x01" if persistent is not None and persistent[row] is False else b"\x02"
            table = tables(row)
            if table:
                values[HEADERS] = encode_headers(table)
            routing_key = layout.routing_key
            if routing_key is None:
                routing_key = _short("routing_key", (keys[row] if keys is not None else None) or "")
            body = bodies[row]
            if body is None:
                # Mostly a value that could not be read: as an empty message it would be lost.
                raise ValueError("body is NULL; an empty message has the body ''")
            octets = body.encode() if isinstance(body, str) else body
            return Encoded(routing_key, encode_content_header(len(octets), values), octets)

        return encode

    def _tables(self, columns: Mapping[str, Sequence[Any]]) -> Callable[[int], FieldTable]:
        """Return the function that makes the headers of a row."""
        key = [columns[name] for name in self._layout.key]
        texts, maps, left_out = columns.get("headers_json"), columns.get("headers"), self._layout.left_out

        def make(row: int) -> FieldTable:
            table: FieldTable = ()
            if texts is not None:
                table = table_of_json(texts[row], left_out)
            elif maps is not None:
                table = table_of_map(maps[row], left_out)
            value = _key([column[row] for column in key])
            if value is None:
                return table
            return (*[entry for entry in table if entry[0] != KEY_HEADER], (KEY_HEADER, value))

        return make


def _values(column: pa.Array) -> Sequence[Any]:
    if pa.types.is_timestamp(column.type):
        # Without the conversion of each to a datetime.
        return [None if value is None else value // 1_000_000 for value in column.cast(pa.int64()).to_pylist()]
    found: Sequence[Any] = column.to_pylist()
    return found


def _key(parts: Sequence[Any]) -> FieldValue | None:
    """Return the value by which duplicates are dropped; None for none."""
    if not parts or any(part is None for part in parts):
        return None
    if len(parts) == 1:
        return FieldValue("l", parts[0]) if isinstance(parts[0], int) else longstr(parts[0])
    return longstr(".".join(map(str, parts)))


def _short(name: str, text: str) -> bytes:
    octets = text.encode()
    if len(octets) > SHORTSTR_MAX:
        raise ValueError(f"{name} has {len(octets)} bytes, {SHORTSTR_MAX} are allowed")
    return encode_shortstr(octets)


def _octet(name: str, value: int) -> bytes:
    if not 0 <= value <= 255 or (name == "delivery_mode" and value not in (1, 2)):
        raise ValueError(f"{name} is {value}, allowed is {'1 or 2' if name == 'delivery_mode' else '0 to 255'}")
    return bytes((value,))


def _seconds(name: str, value: int) -> bytes:
    if value < 0:
        raise ValueError(f"{name} is {-value} s before 1970")
    return _U64.pack(value)


def _milliseconds(name: str, text: str) -> bytes:
    digits = text.removeprefix("+")
    if not (digits.isascii() and digits.isdigit() and len(digits) < 20 and int(digits) <= _EXPIRATION_MAX):
        raise ValueError(f"{name} is '{text[:64]}', allowed are milliseconds from 0 to {_EXPIRATION_MAX}")
    return _short(name, text)


_BY_KIND: Final[dict[str, Callable[[str, Any], bytes]]] = {"int": _octet, "timestamp": _seconds, "string": _short}
#: Encodes a property, by its name.
_PROPERTY: Final = {name: _BY_KIND[kind] for name, kind in PROPERTIES.items()} | {"expiration": _milliseconds}
