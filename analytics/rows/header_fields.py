"""The fields of field tables: those of all messages of a segment are found at once, and become text or JSON.

A table in a table is a level further down, where again all of them are walked at once, one field at a time. Python sees
only what has no text of its own: octets that are not UTF-8, decimals and what JSON has to escape.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from leveret.analytics.rows.property_slices import Slices, binary_slices, constant, convert_distinct
from leveret.analytics.rows.record_rows import Positions, numbers_at
from leveret.protocol.field_table import MAX_STORED_DEPTH
from leveret.storage.directory.queue_names import valid_name

#: Names of the types, by letter, as AMQP 0-9-1 clients use them.
KINDS: Final = {
    "t": "bool", "b": "int8", "B": "uint8", "s": "int16", "u": "uint16", "I": "int32", "i": "uint32", "l": "int64",
    "L": "int64", "f": "float", "d": "double", "D": "decimal", "S": "longstr", "x": "binary", "T": "timestamp",
    "A": "array", "F": "table", "V": "void",
}  # fmt: skip
#: How numpy calls numbers.
_NUMBERS: Final = {
    "b": ">i1", "B": ">u1", "s": ">i2", "u": ">u2", "I": ">i4", "i": ">u4", "l": ">i8", "L": ">i8", "T": ">u8",
    "f": ">f4", "d": ">f8",
}  # fmt: skip
_SIZES: Final = {**{kind: int(form[2:]) for kind, form in _NUMBERS.items()}, "t": 1, "D": 5, "V": 0}
#: What has its length in front of it.
_LONG: Final = -1
_UNKNOWN: Final = -2
_SIZE_OF: Final = np.array([_SIZES.get(chr(code), _LONG) if chr(code) in KINDS else _UNKNOWN for code in range(256)])
#: What JSON has to escape.
_ESCAPED: Final = r'[\x00-\x1f"\\]'
#: Up to so many different names, a bit is used for each to see whether a table has one twice.
_BITS: Final = 32


class HeaderFields:
    """The header tables of messages.

    Args:
        slices: Where the tables are in the octets, without the length in front.

    Attributes:
        whole: Which messages have a table that is not malformed.
        level: The fields of these.
    """

    def __init__(self, octets: bytes, slices: Slices) -> None:
        self._octets = octets
        self.whole = slices.present.copy()
        self._levels: list[FieldLevel] = []
        # A malformed value makes all of a message's table malformed: then the others are walked again.
        while not self._walk(slices):
            pass
        self.level = self._levels[0]

    def texts(self) -> Any:
        """Return the values of the fields as texts; tables and arrays as JSON."""
        return self.level.values(self._inner(is_typed=False), is_json=False)

    def json(self) -> Any:
        """Return the tables as JSON; each value in them is an object with `type` and `value`."""
        found = self.level.json(self._inner(is_typed=True), is_typed=True)
        return pc.if_else(pa.array(self.whole), found, pa.scalar(None, pa.string()))

    def _inner(self, is_typed: bool) -> Any:
        """Return the tables and arrays that are values, as JSON."""
        inner = pa.array([], pa.string())
        for level in reversed(self._levels[1:]):
            inner = level.json(inner, is_typed)
        return inner

    def _walk(self, slices: Slices) -> bool:
        """Find all fields; return False if tables that were whole were found to be malformed."""
        at, stop = slices.start, np.where(self.whole, slices.end, slices.start)
        is_table, message = np.ones(len(at), np.bool_), np.arange(len(at))
        self._levels = []
        while not self._levels or len(at):
            level = FieldLevel(self._octets, at, stop, is_table)
            self._levels.append(level)
            broken = level.broken
            if len(self._levels) > MAX_STORED_DEPTH and len(level.inner):
                broken = level.owner[level.inner]
            if len(broken):
                self.whole[message[broken]] = False
                return False
            inner = level.inner
            at, stop, is_table = level.start[inner], level.end[inner], level.is_table(inner)
            message = message[level.owner[inner]]
        return True


class _Round(NamedTuple):
    """The fields at one place of their tables: all first ones, or all second ones.

    Attributes:
        owner: Numbers of the tables and arrays that have one.
        name_at, kind_at, start, end: Offsets of their names with the length in front, type letters and values.
        kind: Their type letters; only one if all have the same.
        name: The name of all of them, if they have the same type, too; otherwise None.
    """

    owner: Positions
    name_at: Positions
    kind_at: Positions
    start: Positions
    end: Positions
    kind: npt.NDArray[np.uint8]
    name: bytes | None


class FieldLevel:
    """The fields of some tables and arrays. Their numbers: all first ones come before all second ones, and so on.

    Args:
        at: Where these begin, without their length.
        stop: Where they end.
        is_table: Which are tables; others are arrays, whose values have no names.

    Attributes:
        owner: For each field the number of its table or array.
        kind_at, start, end: Offsets of type letters and values.
        inner: Numbers of the fields that are tables or arrays.
        broken: Numbers of the tables and arrays that are malformed.
    """

    def __init__(self, octets: bytes, at: Positions, stop: Positions, is_table: npt.NDArray[np.bool_]) -> None:
        self._octets = octets
        self._bytes8 = np.frombuffer(octets, np.uint8)
        self._is_table = is_table
        self._count = len(at)
        self.broken: list[int] | Positions = []
        self._rounds = list(self._walk(at, stop))
        none = np.empty(0, np.int64)
        self.owner, self._name_at, self.kind_at, self.start, self.end = (
            np.concatenate([none, *(each[column] for each in self._rounds)]) for column in range(5)
        )
        self.inner = np.concatenate((self._of_kind.get("A", none), self._of_kind.get("F", none)))
        self._check_finite()

    def _walk(self, at: Positions, stop: Positions) -> Iterator[_Round]:
        octets = self._bytes8
        all_tables = self._is_table.all()
        owner = np.flatnonzero(stop > at)
        at, stop = at[owner], stop[owner]
        while len(owner):
            # Most tables have the same fields in the same order.
            head = self._common_head(at) if all_tables else b""
            if head:
                kind_at, kind = at + (len(head) - 1), np.frombuffer(head[-1:], np.uint8)
            else:
                kind_at = at + 1 + octets[at]
                if not all_tables:
                    kind_at = np.where(self._is_table[owner], kind_at, at)
                kind = octets.take(kind_at, mode="clip")
            start = kind_at + 1
            size = _SIZE_OF[kind]
            is_long = size == _LONG
            if is_long.any():
                start = start + 4 * is_long
                length = numbers_at(octets, np.clip(start - 4, 0, len(octets) - 4), ">u4").astype(np.int64)
                size = np.where(is_long, length, size)
            end = start + size
            good = (size >= 0) & (kind_at < stop) & (end <= stop)
            if not good.all():
                self.broken = owner[~good]
                return
            yield _Round(owner, at, kind_at, start, end, kind, head[1:-1] if head else None)
            further = end < stop
            if further.all():
                at = end
            else:
                owner, at, stop = owner[further], end[further], stop[further]

    def _common_head(self, at: Positions) -> bytes:
        """Return the name, with its length in front, and the type letter of fields, if they are all the same."""
        size = int(self._bytes8[at[0]]) + 2
        if at.max() + size > len(self._octets):
            return b""
        heads = numbers_at(self._octets, at, f"S{size}")
        return self._octets[at[0] : at[0] + size] if (heads == heads[0]).all() else b""

    @cached_property
    def _shape(self) -> list[bytes] | None:
        """The names that all tables have, in this order; None if they differ, one is there twice or is not UTF-8."""
        names = [each.name for each in self._rounds if each.name is not None and len(each.owner) == self._count]
        return names if len(set(names)) == len(self._rounds) and all(map(_is_utf8, names)) else None

    @cached_property
    def _spans(self) -> list[slice]:
        """The numbers of the fields of each round."""
        bounds = np.cumsum([0, *(len(each.owner) for each in self._rounds)]).tolist()
        return list(map(slice, bounds[:-1], bounds[1:]))

    @cached_property
    def _of_kind(self) -> dict[str, Positions]:
        """The numbers of the fields of each type."""
        found: dict[str, list[Positions]] = {}
        for span, each in zip(self._spans, self._rounds, strict=True):
            for code in np.flatnonzero(np.bincount(each.kind)).tolist():
                numbers = np.arange(span.start, span.stop)
                found.setdefault(chr(code), []).append(numbers if each.name is not None else numbers[each.kind == code])
        return {kind: np.concatenate(numbers) for kind, numbers in found.items()}

    def _check_finite(self) -> None:
        """Note numbers that are none, which no table may have."""
        for kind in "fd":
            at = self._of_kind.get(kind, self.inner[:0])
            if len(at) and not len(self.broken):
                self.broken = self.owner[at[~np.isfinite(self._numbers(at, kind))]]

    def is_table(self, numbers: Positions) -> npt.NDArray[np.bool_]:
        """Return which of some fields are tables."""
        found: npt.NDArray[np.bool_] = self._bytes8[self.kind_at[numbers]] == ord("F")
        return found

    def _numbers(self, at: Positions, kind: str) -> npt.NDArray[Any]:
        return numbers_at(self._octets, self.start[at], _NUMBERS[kind])

    @cached_property
    def _names(self) -> tuple[Any, Positions]:
        """The different names, and which one each field has: that after the last one if it has none."""
        named = self._is_table[self.owner]
        for span, each in zip(self._spans, self._rounds, strict=True):
            named[span] &= each.name is None
        common = pa.array([each.name for each in self._rounds if each.name is not None], pa.binary())
        others = binary_slices(self._octets, (self._name_at + 1)[named], self.kind_at[named])
        found = pa.concat_arrays([common, others]).dictionary_encode()
        numbers = found.indices.to_numpy()
        places = np.full(len(named), len(found.dictionary), np.int64)
        places[named] = numbers[len(common) :]
        spans = (span for span, each in zip(self._spans, self._rounds, strict=True) if each.name is not None)
        for span, number in zip(spans, numbers, strict=False):
            places[span] = number
        try:
            return found.dictionary.cast(pa.string()), places
        except pa.ArrowInvalid:
            texts = [valid_name(name.decode("utf-8", "surrogateescape")) for name in found.dictionary.to_pylist()]
        # Names that are not UTF-8 may have become the same.
        names = pa.array(texts, pa.string()).dictionary_encode()
        merged = np.append(names.indices.to_numpy(), len(names.dictionary))
        return names.dictionary, merged[places]

    @cached_property
    def _kept(self) -> npt.NDArray[np.bool_] | None:
        """Which fields do not have a name that is there already in their table; None if all are so."""
        if self._shape is not None:
            return None
        names, places = self._names
        if len(names) <= _BITS:
            seen, again = np.zeros(self._count, np.int64), False
            for span, each in zip(self._spans, self._rounds, strict=True):
                # A field without a name has the number behind the last one, which is masked out.
                bits = (1 << places[span]) & ((1 << len(names)) - 1)
                before = seen[each.owner]
                again = again or bool((before & bits).any())
                seen[each.owner] = before | bits
            if not again:
                return None
        named = np.flatnonzero(places < len(names))
        known, first = np.unique(self.owner[named] * len(names) + places[named], return_index=True)
        if len(known) == len(named):
            return None
        kept = np.ones(len(self.owner), np.bool_)
        kept[named] = False
        kept[named[first]] = True
        return kept

    @cached_property
    def _order(self) -> Positions:
        """The numbers of the fields, table after table, but those whose name is there already in their table."""
        if self._shape:
            return np.arange(len(self.owner)).reshape(len(self._shape), -1).T.ravel()
        counts = np.bincount(self.owner, minlength=self._count)
        first = np.cumsum(counts) - counts
        order = np.empty(len(self.owner), np.int64)
        for number, (span, each) in enumerate(zip(self._spans, self._rounds, strict=True)):
            order[first[each.owner] + number] = np.arange(span.start, span.stop)
        return order if self._kept is None else order[self._kept[order]]

    @property
    def names(self) -> Any:
        """The names of the fields, table after table."""
        if self._shape is not None:
            sizes = np.array(list(map(len, self._shape)), np.int32)
            ends = np.concatenate(([0], np.cumsum(np.tile(sizes, self._count)))).astype(np.int32)
            buffers = [None, pa.py_buffer(ends), pa.py_buffer(b"".join(self._shape) * self._count)]
            return pa.Array.from_buffers(pa.string(), len(ends) - 1, buffers)
        names, places = self._names
        return names.take(pa.array(places[self._order]))

    @property
    def offsets(self) -> Any:
        """Where the names and values of each table begin, and where the last ones end."""
        if self._shape is not None:
            return pa.array(np.arange(self._count + 1, dtype=np.int32) * np.int32(len(self._shape)))
        owner = self.owner if self._kept is None else self.owner[self._kept]
        counts = np.bincount(owner, minlength=self._count)
        return pa.array(np.concatenate(([0], np.cumsum(counts))).astype(np.int32))

    def named(self, name: str) -> Positions:
        """Return the fields with a name, table after table; of several in a table the first one."""
        names, places = self._names
        found: Positions = self._order[places[self._order] == pc.index(names, name).as_py()]
        return found

    def json(self, inner: Any, is_typed: bool) -> Any:
        """Return the tables and arrays as JSON.

        Args:
            inner: Those that are values in them, likewise.
            is_typed: Whether each value becomes an object with `type` and `value`.
        """
        parts = [self._heads(is_typed), self.values(inner, is_json=True), *(["}"] if is_typed else [])]
        fields = pc.binary_join_element_wise(*parts, "")
        joined = pc.binary_join(pa.ListArray.from_arrays(self.offsets, fields), ", ")
        if self._is_table.all():
            return pc.binary_join_element_wise("{", joined, "}", "")
        is_table = pa.array(self._is_table)
        ends = pc.if_else(is_table, "{", "["), pc.if_else(is_table, "}", "]")
        return pc.binary_join_element_wise(ends[0], joined, ends[1], "")

    def _heads(self, is_typed: bool) -> Any:
        """Return what is in front of each value in JSON."""
        names, places = self._names
        heads = pc.binary_join_element_wise(_quoted(names), ": ", "")
        heads = pa.concat_arrays([heads, pa.array([""], pa.string())])
        if not is_typed:
            return heads.take(pa.array(places[self._order]))
        kind = self._bytes8[self.kind_at].astype(np.int64)
        # A text that is not UTF-8 has another type.
        kind[self._texts[1]] = ord("x")
        known, numbers = np.unique(places << 8 | kind, return_inverse=True)
        types = pa.array([f'{{"type": "{KINDS[chr(code)]}", "value": ' for code in (known & 255).tolist()], pa.string())
        heads = pc.binary_join_element_wise(heads.take(pa.array(known >> 8)), types, "")
        return heads.take(pa.array(numbers[self._order]))

    @cached_property
    def _texts(self) -> tuple[Positions, Positions, Any]:
        """Which fields are texts, which of type text are not UTF-8, and the texts."""
        at = self._of_kind.get("S", self.inner[:0])
        pieces = self._pieces(at)
        try:
            return at, at[:0], pieces.cast(pa.string())
        except pa.ArrowInvalid:
            good = np.array([_is_utf8(piece) for piece in pieces.to_pylist()], np.bool_)
            return at[good], at[~good], pieces.filter(pa.array(good)).cast(pa.string())

    def _pieces(self, at: Positions) -> Any:
        return binary_slices(self._octets, self.start[at], self.end[at])

    def values(self, inner: Any, is_json: bool) -> Any:
        """Return the values of the fields as texts, table after table.

        Args:
            inner: Those that are tables and arrays, as JSON.
            is_json: Return the others as JSON, too.
        """
        texts_at, octets_at, texts = self._texts
        groups = [(self.inner, inner), (texts_at, _quoted(texts) if is_json else texts)]
        for kind, at in self._of_kind.items():
            at = octets_at if kind == "S" else at
            if kind in _CONVERT:
                found = convert_distinct(self._pieces(at), pa.string(), _CONVERT[kind])
                groups.append((at, pc.binary_join_element_wise('"', found, '"', "") if is_json else found))
            elif kind == "t":
                groups.append((at, pc.if_else(pa.array(self._bytes8[self.start[at]] != 0), "true", "false")))
            elif kind == "V":
                groups.append((at, constant("null" if is_json else None, pa.string(), len(at))))
            elif kind in "fd":
                numbers = self._numbers(at, kind).astype(np.float64).tolist()
                groups.append((at, pa.array(map(repr, numbers), pa.string())))
            elif kind in _NUMBERS:
                numbers = self._numbers(at, kind)
                wide = np.uint64 if kind == "T" else np.int64
                groups.append((at, pa.array(numbers.astype(wide)).cast(pa.string())))
        return self._in_order(groups)

    def _in_order(self, groups: Sequence[tuple[Positions, Any]]) -> Any:
        """Return the values of all groups, of fields with these numbers, table after table."""
        filled = [(at, values) for at, values in groups if len(at)] or groups[:1]
        places = np.concatenate([at for at, _ in filled])
        found = np.empty(len(places), np.int64)
        found[places] = np.arange(len(places))
        return pa.concat_arrays([values for _, values in filled]).take(pa.array(found[self._order]))


def _base64(octets: bytes) -> str:
    return base64.b64encode(octets).decode()


def decimal_text(scale: int, unscaled: int) -> str:
    """Return a decimal as text, because a float cannot have all of its digits.

    Args:
        unscaled: Decimals are signed by the specification; RabbitMQ reads them as unsigned.
    """
    signed = unscaled - (1 << 32) if unscaled >> 31 else unscaled
    return f"{Decimal(signed).scaleb(-scale):f}"


#: What makes text of values that Python has to see.
_CONVERT: Final[dict[str, Callable[[bytes], str]]] = {
    "x": _base64,
    "S": _base64,
    "D": lambda octets: decimal_text(octets[0], int.from_bytes(octets[1:], "big")),
}


def _quoted(texts: Any) -> Any:
    """Return texts as JSON."""
    quoted = pc.binary_join_element_wise('"', texts, '"', "")
    is_odd = pc.match_substring_regex(texts, _ESCAPED)
    if not pc.any(is_odd).as_py():
        return quoted
    odd = [json.dumps(text, ensure_ascii=False) for text in texts.filter(is_odd).to_pylist()]
    return pc.replace_with_mask(quoted, is_odd, pa.array(odd, pa.string()))


def _is_utf8(octets: bytes) -> bool:
    try:
        octets.decode()
    except UnicodeDecodeError:
        return False
    return True
