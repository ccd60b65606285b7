"""The columns that are computed from headers: all tables of a segment are walked at once, one field at a time.

Texts and integers take no Python for each of them. Other values are decoded once for each different one.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import cached_property
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from leveret.analytics.rows.property_slices import Slices, binary_slices, text_slices
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


#: Names of the types, by letter.
KINDS: Final = {
    "t": "bool", "b": "int8", "B": "uint8", "s": "int16", "u": "uint16", "I": "int32", "i": "uint32", "l": "int64",
    "L": "int64", "f": "float", "d": "double", "D": "decimal", "S": "longstr", "x": "binary", "T": "timestamp",
    "A": "array", "F": "table", "V": "void",
}  # fmt: skip


def decode_table(octets: bytes) -> dict[str, TypedValue] | None:
    """Decode a field table.

    Args:
        octets: The table without its length prefix.
    Returns:
        The values by name; None if the table is malformed. If a name occurs twice, the first value is used.
    """
    try:
        return _table(decode(octets, MAX_STORED_DEPTH))
    except MalformedTable:
        return None


def untyped(value: TypedValue) -> Any:
    """Return a value without type names, ready for JSON; bytes that are not UTF-8 are base64."""
    if value.kind == "table":
        return {name: untyped(each) for name, each in value.value.items()}
    if value.kind == "array":
        return [untyped(each) for each in value.value]
    return value.value


def as_text(value: TypedValue) -> str | None:
    """Return a value as a string; None for void."""
    found = untyped(value)
    if found is None or isinstance(found, str):
        return found
    return json.dumps(found, ensure_ascii=False)


def as_json(table: dict[str, TypedValue]) -> str:
    """Return a table as JSON; each value is an object with `type` and `value`."""
    return json.dumps({name: _typed(value) for name, value in table.items()}, ensure_ascii=False)


def json_of(value: TypedValue) -> str:
    """Return a value as as_json() has it in its table, without its type."""
    return json.dumps(_typed(value)["value"], ensure_ascii=False)


def _typed(value: TypedValue) -> dict[str, Any]:
    inner = value.value
    if value.kind == "table":
        inner = {name: _typed(each) for name, each in inner.items()}
    elif value.kind == "array":
        inner = [_typed(each) for each in inner]
    return {"type": value.kind, "value": inner}


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
        scale, unscaled = value
        # Decimals are signed by the specification; RabbitMQ reads them as unsigned.
        signed = unscaled - (1 << 32) if unscaled >> 31 else unscaled
        # As text: a float cannot have all of its digits.
        value = f"{Decimal(signed).scaleb(-scale):f}"
    elif kind == "S":
        try:
            return TypedValue("longstr", value.decode("utf-8"))
        except UnicodeDecodeError:
            return TypedValue("binary", base64.b64encode(value).decode())
    elif kind == "x":
        value = base64.b64encode(value).decode()
    return TypedValue(KINDS[kind], value)


_COUNT_MAX: Final = (1 << 63) - 1
_NUMBERS: Final = {"b": 1, "B": 1, "s": 2, "u": 2, "I": 4, "i": 4, "l": 8, "L": 8, "T": 8}
_SIGNED: Final = frozenset("bsIlLT")
_SIZES: Final = {**_NUMBERS, "t": 1, "f": 4, "d": 8, "D": 5, "V": 0}
#: What has its length in front of it.
_LONG: Final = -1
_UNKNOWN: Final = -2
_TEXT: Final = ord("S")
_TRUTH: Final = ord("t")
#: Types of values that can be malformed although they are as long as they say: also numbers that are not finite.
_CHECKED: Final = np.array([ord(letter) for letter in "AFfd"])
#: Columns of what a dead letter was published to first, and their places in an origin.
_ORIGINAL: Final = {"original_exchange": 0, "original_routing_key": 1}
#: Exchange and routing key.
_Origin: TypeAlias = tuple[str | None, str | None]
#: What JSON has to escape.
_ESCAPED: Final = r'[\x00-\x1f"\\]'


def _sizes() -> npt.NDArray[np.int64]:
    sizes = np.full(256, _UNKNOWN, np.int64)
    for letter in KINDS:
        sizes[ord(letter)] = _SIZES.get(letter, _LONG)
    return sizes


_SIZE_OF: Final = _sizes()


class HeaderColumns:
    """Columns computed from the header tables of messages.

    Args:
        slices: Where the tables are in it, without the length in front.
    """

    def __init__(self, octets: bytes, slices: Slices) -> None:
        self._octets = octets
        self._bytes8 = np.frombuffer(octets, np.uint8)
        self._count = len(slices.start)
        self._whole = slices.present.copy()
        # Of each field: the number of its message, and where its name, its type letter and its value begin and end.
        self._row, self._name_at, self._kind_at, self._start, self._end = self._walk(slices)
        self._decoded: dict[int, tuple[Any, list[TypedValue]]] = {}
        self._keep(self._whole[self._row])
        checked = np.isin(self._kind, _CHECKED)
        if checked.any():
            self._drop_malformed(checked)
        self._drop_repeated()

    def column(self, name: str) -> Any:
        """Return a column."""
        if name == "headers":
            offsets, texts = self._offsets, self._texts
            return pa.MapArray.from_arrays(offsets, self._names.cast(pa.string()), texts, mask=pa.array(~self._whole))
        if name == "headers_json":
            return self._json()
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

    def _walk(self, slices: Slices) -> tuple[Positions, Positions, Positions, Positions, Positions]:
        """Return the fields of all tables in their order; tables that are malformed are noted."""
        octets, last = self._bytes8, len(self._bytes8) - 1
        rows = np.flatnonzero(slices.present & (slices.end > slices.start))
        at, stop = slices.start[rows], slices.end[rows]
        found: list[tuple[Positions, ...]] = []
        while len(rows):
            kind_at = at + 1 + octets[at]
            size = np.where(kind_at < stop, _SIZE_OF[octets[np.minimum(kind_at, last)]], _UNKNOWN)
            start = kind_at + 1
            is_long = size == _LONG
            if is_long.any():
                length = np.zeros(len(at), np.int64)
                for byte in range(4):
                    length = length << 8 | octets[np.minimum(start + byte, last)]
                start = np.where(is_long, start + 4, start)
                size = np.where(is_long, length, size)
            end = start + size
            good = (size >= 0) & (end <= stop)
            self._whole[rows[~good]] = False
            found.append((rows[good], at[good], kind_at[good], start[good], end[good]))
            further = good & (end < stop)
            rows, at, stop = rows[further], end[further], stop[further]
        if not found:
            none = np.empty(0, np.int64)
            return none, none, none, none, none
        columns = [np.concatenate(column) for column in zip(*found, strict=True)]
        # A message's fields were found one after the other.
        order = np.argsort(columns[0], kind="stable")
        row, name_at, kind_at, start, end = (column[order] for column in columns)
        return row, name_at, kind_at, start, end

    @property
    def _kind(self) -> npt.NDArray[np.uint8]:
        return self._bytes8[self._kind_at]

    def _keep(self, kept: npt.NDArray[np.bool_]) -> None:
        if not kept.all():
            self._row, self._name_at, self._kind_at = self._row[kept], self._name_at[kept], self._kind_at[kept]
            self._start, self._end = self._start[kept], self._end[kept]

    def _drop_malformed(self, checked: npt.NDArray[np.bool_]) -> None:
        """Drop the fields of tables with a malformed value in them."""
        at = np.flatnonzero(checked)
        indices, values = self._decode(at)
        broken = np.array([value is None for value in values], np.bool_)
        if broken.any():
            self._whole[self._row[at[broken[indices.to_numpy()]]]] = False
            self._keep(self._whole[self._row])

    def _drop_repeated(self) -> None:
        """Drop the fields whose name is there already in the same table."""
        self._names = text_slices(self._octets, self._name_at + 1, self._kind_at).dictionary_encode()
        keys = self._row * max(1, len(self._names.dictionary)) + self._names.indices.to_numpy()
        known, first = np.unique(keys, return_index=True)
        if len(known) < len(keys):
            kept = np.zeros(len(keys), np.bool_)
            kept[first] = True
            self._keep(kept)
            self._names = self._names.filter(pa.array(kept))

    def _decode(self, at: Positions) -> tuple[Any, list[TypedValue | None]]:
        """Return different values of fields, and which one each has; None for a malformed one."""
        pieces = binary_slices(self._octets, self._kind_at[at], self._end[at]).dictionary_encode()
        # As the only field of a table, under an empty name.
        tables = [decode_table(b"\0" + piece) for piece in pieces.dictionary.to_pylist()]
        return pieces.indices, [None if table is None else table[""] for table in tables]

    @property
    def _offsets(self) -> Any:
        """Where the fields of each message begin, and where the last ones end."""
        counts = np.bincount(self._row, minlength=self._count)
        return pa.array(np.concatenate(([0], np.cumsum(counts))).astype(np.int32))

    @cached_property
    def _values(self) -> list[tuple[Positions, Any, Any]]:
        """The values as groups: which fields they are of, their texts, and their texts in JSON."""
        kind = self._kind
        groups: list[tuple[Positions, Any, Any]] = []
        others = np.ones(len(kind), np.bool_)
        texts = np.flatnonzero(kind == _TEXT)
        if len(texts):
            found = binary_slices(self._octets, self._start[texts], self._end[texts])
            try:
                found = found.cast(pa.string())
            except pa.ArrowInvalid:
                # One of them is not UTF-8, and becomes base64.
                pass
            else:
                escaped = pc.match_substring_regex(found, _ESCAPED).to_numpy(zero_copy_only=False)
                plain = found.filter(pa.array(~escaped))
                groups.append((texts[~escaped], plain, pc.binary_join_element_wise('"', plain, '"', "")))
                others[texts[~escaped]] = False
        for letter, size in _NUMBERS.items():
            at = np.flatnonzero(kind == ord(letter))
            if len(at):
                numbers = self._numbers(at, size, letter in _SIGNED)
                # A time is unsigned; beyond 63 bits it is decoded as the others are.
                at, numbers = (at, numbers) if letter != "T" else (at[numbers >= 0], numbers[numbers >= 0])
                digits = pa.array(numbers).cast(pa.string())
                groups.append((at, digits, digits))
                others[at] = False
        at = np.flatnonzero(kind == _TRUTH)
        if len(at):
            truths = pc.if_else(pa.array(self._bytes8[self._start[at]] != 0), "true", "false")
            groups.append((at, truths, truths))
            others[at] = False
        at = np.flatnonzero(others)
        if len(at):
            indices, values = self._decode(at)
            known = [value for value in values if value is not None]
            plain = pa.array([as_text(value) for value in known], pa.string()).take(indices)
            groups.append((at, plain, pa.array([json_of(value) for value in known], pa.string()).take(indices)))
        return groups

    def _numbers(self, at: Positions, size: int, is_signed: bool) -> npt.NDArray[np.int64]:
        found = np.zeros(len(at), np.int64)
        for byte in range(size):
            found = found << 8 | self._bytes8[self._start[at] + byte]
        return found << (64 - 8 * size) >> (64 - 8 * size) if is_signed else found

    @property
    def _texts(self) -> Any:
        return self._in_order([(at, texts) for at, texts, _ in self._values])

    def _in_order(self, groups: Sequence[tuple[Positions, Any]]) -> Any:
        if not groups:
            return pa.array([], pa.string())
        order = np.argsort(np.concatenate([at for at, _ in groups]), kind="stable")
        return pa.concat_arrays([values for _, values in groups]).take(pa.array(order))

    def _json(self) -> Any:
        """Return the tables as JSON, as field_table.as_json() does."""
        names, kind = self._names.dictionary.to_pylist(), self._kind.astype(np.int64)
        # A text that is not UTF-8 has another type.
        groups = self._values
        is_bad = np.zeros(len(kind), np.bool_)
        if groups and (kind == _TEXT).any():
            is_bad[np.flatnonzero(kind == _TEXT)] = self._is_not_text(np.flatnonzero(kind == _TEXT))
        keys = (self._names.indices.to_numpy().astype(np.int64) << 9) | (kind << 1) | is_bad
        known, places = np.unique(keys, return_inverse=True)
        heads = [_head(names[key >> 9], "x" if key & 1 else chr(key >> 1 & 0xFF)) for key in known.tolist()]
        values = self._in_order([(at, texts) for at, _, texts in groups])
        fields = pc.binary_join_element_wise(pa.array(heads, pa.string()).take(pa.array(places)), values, "}", "")
        tables = pc.binary_join(pa.ListArray.from_arrays(self._offsets, fields), ", ")
        found = pc.binary_join_element_wise("{", tables, "}", "")
        return pc.if_else(pa.array(self._whole), found, pa.scalar(None, pa.string()))

    def _is_not_text(self, at: Positions) -> npt.NDArray[np.bool_]:
        pieces = binary_slices(self._octets, self._start[at], self._end[at])
        try:
            pieces.cast(pa.string())
        except pa.ArrowInvalid:
            return np.array([not _is_utf8(piece) for piece in pieces.to_pylist()], np.bool_)
        return np.zeros(len(at), np.bool_)

    @cached_property
    def _deaths(self) -> tuple[Positions, Any, list[list[dict[str, Any]]]]:
        """The messages with a header x-death, which one each has, and the entries of the different ones."""
        at = np.flatnonzero(pc.equal(self._names.cast(pa.string()), "x-death").to_numpy(zero_copy_only=False))
        indices, values = self._decode(at)
        return self._row[at], indices, [_entries(value) for value in values]

    @cached_property
    def _origins(self) -> tuple[Positions, Any, list[_Origin]]:
        """The messages with a header x-death, which origin each has, and the exchange and key of the different ones."""
        rows, indices, values = self._deaths
        headers = self.column("headers").take(pa.array(rows))
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


def _head(name: str, kind: str) -> str:
    return f'{json.dumps(name, ensure_ascii=False)}: {{"type": "{KINDS[kind]}", "value": '


def _is_utf8(octets: bytes) -> bool:
    try:
        octets.decode()
    except UnicodeDecodeError:
        return False
    return True


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
