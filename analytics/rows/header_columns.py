"""The columns that are computed from headers; x-death is decoded once for each different one."""

from __future__ import annotations

import base64
from collections.abc import Callable
from functools import cached_property
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from leveret.analytics.rows.header_fields import KINDS, HeaderFields, decimal_text
from leveret.analytics.rows.property_slices import Slices, binary_slices
from leveret.analytics.rows.record_rows import Positions
from leveret.protocol.field_table import MAX_STORED_DEPTH, FieldTable, FieldValue, MalformedTable
from leveret.protocol.field_table import decode_table as decode
from leveret.storage.directory.queue_names import valid_name


class TypedValue(NamedTuple):
    """A value of a field table.

    Attributes:
        kind: Name of the type as AMQP 0-9-1 clients use it, such as `int64` or `longstr`.
        value: The value; a dict of TypedValue for a table, a list of TypedValue for an array, text for a decimal.
    """

    kind: str
    value: Any


def decode_table(octets: bytes) -> dict[str, TypedValue] | None:
    """Decode a field table.

    Args:
        octets: The table without its length prefix.
    Returns:
        The values by name; None if the table is malformed, or nested deeper than Python can go. If a name occurs twice,
        the first value is used.
    """
    try:
        return _table(decode(octets, MAX_STORED_DEPTH))
    except (MalformedTable, RecursionError):
        return None


def untyped(value: TypedValue) -> Any:
    """Return a value without type names, ready for JSON; bytes that are not UTF-8 are base64."""
    if value.kind == "table":
        return {name: untyped(each) for name, each in value.value.items()}
    if value.kind == "array":
        return [untyped(each) for each in value.value]
    return value.value


def _table(table: FieldTable) -> dict[str, TypedValue]:
    found: dict[str, TypedValue] = {}
    for key, value in table:
        # Surrogates represent bytes that are not UTF-8; Spark strings cannot contain them.
        name = valid_name(key)
        if name not in found:
            found[name] = _value(value)
    return found


def _value(field: FieldValue) -> TypedValue:
    kind, value = field
    if kind == "F":
        value = _table(value)
    elif kind == "A":
        value = [_value(each) for each in value]
    elif kind == "D":
        value = decimal_text(*value)
    elif kind == "S":
        try:
            return TypedValue("longstr", value.decode("utf-8"))
        except UnicodeDecodeError:
            return TypedValue("binary", base64.b64encode(value).decode())
    elif kind == "x":
        value = base64.b64encode(value).decode()
    return TypedValue(KINDS[kind], value)


_COUNT_MAX: Final = (1 << 63) - 1
#: Columns of what a dead letter was published to first, and their places in an origin.
_ORIGINAL: Final = {"original_exchange": 0, "original_routing_key": 1}
#: Exchange and routing key.
_Origin: TypeAlias = tuple[str | None, str | None]


class HeaderColumns:
    """Columns computed from the header tables of messages.

    Args:
        slices: Where the tables are in it, without the length in front.
    """

    def __init__(self, octets: bytes, slices: Slices) -> None:
        self._octets = octets
        self._count = len(slices.start)
        self._fields = HeaderFields(octets, slices)

    def column(self, name: str) -> Any:
        """Return a column."""
        if name == "headers":
            return self._headers
        if name == "headers_json":
            return self._fields.json()
        if name in _ORIGINAL:
            kind, default = pa.string(), None
            rows, indices, origins = self._origins
            found = pa.array([each[_ORIGINAL[name]] for each in origins], kind).take(indices)
        else:
            kind, convert, default = _OF_DEATHS[name]
            rows, indices, values = self._deaths
            found = pa.array([convert(each) for each in values], kind).take(indices)
        place = np.full(self._count, len(rows), np.int64)
        place[rows] = np.arange(len(rows))
        return pa.concat_arrays([found, pa.array([default], kind)]).take(pa.array(place))

    @cached_property
    def _headers(self) -> Any:
        level, mask = self._fields.level, pa.array(~self._fields.whole)
        return pa.MapArray.from_arrays(level.offsets, level.names, self._fields.texts(), mask=mask)

    @cached_property
    def _deaths(self) -> tuple[Positions, Any, list[list[dict[str, Any]]]]:
        """The messages with a header x-death, which one each has, and the entries of the different ones."""
        level = self._fields.level
        at = level.named("x-death")
        pieces = binary_slices(self._octets, level.kind_at[at], level.end[at]).dictionary_encode()
        # As the only field of a table, under an empty name.
        tables = [decode_table(b"\0" + piece) or {} for piece in pieces.dictionary.to_pylist()]
        return level.owner[at], pieces.indices, [_entries(table.get("")) for table in tables]

    @cached_property
    def _origins(self) -> tuple[Positions, Any, list[_Origin]]:
        """The messages with a header x-death, which origin each has, and the exchange and key of the different ones."""
        rows, indices, values = self._deaths
        headers = self._headers.take(pa.array(rows))
        firsts = [
            pc.map_lookup(headers, f"x-first-death-{what}", "first").dictionary_encode("encode")
            for what in ("queue", "reason", "exchange")
        ]
        # A number for each different combination of x-death and these texts.
        places = indices.to_numpy().astype(np.int64)
        for first in firsts:
            pairs = places * max(1, len(first.dictionary)) + first.indices.to_numpy()
            places = np.unique(pairs, return_inverse=True)[1]
        samples = np.unique(places, return_index=True)[1]
        origins = [
            _origin(values[indices[sample].as_py()], *(first[sample].as_py() for first in firsts))
            for sample in samples.tolist()
        ]
        return rows, pa.array(places), origins


def _entries(value: TypedValue | None) -> list[dict[str, Any]]:
    """Return the entries of x-death, the latest first."""
    found = [] if value is None else untyped(value)
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def _origin(deaths: list[dict[str, Any]], queue: str | None, reason: str | None, exchange: str | None) -> _Origin:
    """Return what a message was published to before its first death, which the headers x-first-death-… name."""
    entry: dict[str, Any] = next(iter(reversed(deaths)), {})
    if queue is not None:
        entry = next((each for each in deaths if (each.get("queue"), each.get("reason")) == (queue, reason)), {})
    published = exchange if exchange is not None else entry.get("exchange")
    keys = entry.get("routing-keys")
    key = keys[0] if isinstance(keys, list) and keys else None
    return published if isinstance(published, str) else None, key if isinstance(key, str) else None


def _death_count(deaths: list[dict[str, Any]]) -> int:
    counts = (each.get("count", 1) for each in deaths)
    # A publisher can set any counts; their sum must fit into a bigint.
    return min(sum(count for count in counts if isinstance(count, int) and count > 0), _COUNT_MAX)


def _last_death(field: str) -> Callable[[list[dict[str, Any]]], str | None]:
    def find(deaths: list[dict[str, Any]]) -> str | None:
        found = next(iter(deaths), {}).get(field)
        return found if isinstance(found, str) else None

    return find


def _death_time(deaths: list[dict[str, Any]]) -> int | None:
    found = next(iter(deaths), {}).get("time")
    return found * 1_000_000 if isinstance(found, int) and 0 <= found < 253_402_300_800 else None


#: Type of a column, what makes its value of the entries of x-death, and the value of messages without it.
_OF_DEATHS: Final[dict[str, tuple[Any, Callable[[list[dict[str, Any]]], Any], Any]]] = {
    "dead_letter_count": (pa.int64(), _death_count, 0),
    "dead_letter_reason": (pa.string(), _last_death("reason"), None),
    "dead_letter_queue": (pa.string(), _last_death("queue"), None),
    "dead_lettered_at": (pa.timestamp("us", tz="UTC"), _death_time, None),
}
