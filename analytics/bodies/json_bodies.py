"""Reads JSON bodies into an Arrow array: in bulk, and one by one those that are not as expected."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from decimal import Decimal, InvalidOperation
from itertools import pairwise
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json as arrow_json

from leveret.analytics.bodies.json_values import Place, fit_into
from leveret.analytics.bodies.payloads import BodyError, Payloads, read_rows, registry_hint, without_number
from leveret.analytics.bodies.value_types import TIMES

#: Bodies that are read in bulk at once. If that fails, it is tried with parts of them; a few are read one by one.
_AT_ONCE: Final = 16 << 10
_PARTS: Final = 8
_FEW: Final = 16
_BOM: Final = b"\xef\xbb\xbf"
#: Where Arrow's reader says which body is not as expected.
_ROW: Final = re.compile(r" in row (\d+)$")
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
#: Types for which Arrow's reader does the same as reading one by one, or fails.
_BULK: Final = (
    pa.types.is_string,
    pa.types.is_int64,
    pa.types.is_int32,
    pa.types.is_int16,
    pa.types.is_int8,
    pa.types.is_boolean,
    pa.types.is_float64,
    pa.types.is_float32,
    pa.types.is_decimal128,
    pa.types.is_timestamp,
    pa.types.is_date32,
)
#: Types that are read as others and then cast.
_READ_AS: Final = {pa.float32(): pa.float64(), pa.date32(): pa.string()}
#: The days that Spark has, since 1970.
_DAYS: Final = range(TIMES.start // 86_400_000_000, TIMES.stop // 86_400_000_000)


class JsonBodies:
    """Reads JSON bodies.

    Args:
        kind: The type of the values.
        begins_with_number: Whether they begin with the five bytes of a schema registry.
    """

    def __init__(self, kind: pa.DataType, begins_with_number: bool = False) -> None:
        self.kind = kind
        self._begins_with_number = begins_with_number
        self._fit = fit_into(kind)
        self._in_bulk = pa.types.is_struct(kind) and kind.num_fields > 0 and _suits_bulk(kind)
        self._read_kind = _read_as(kind) if self._in_bulk else kind

    def read(self, payloads: Payloads) -> pa.Array:
        """Return the values of bodies, and add what is wrong with some to the reasons."""
        if self._begins_with_number:
            payloads = without_number(payloads)
        octets = payloads.octets
        chunks = [
            self._chunk(payloads, start, octets.slice(start, _AT_ONCE)) for start in range(0, len(octets), _AT_ONCE)
        ]
        return pa.concat_arrays(chunks) if chunks else pa.array([], self.kind)

    def _chunk(self, payloads: Payloads, start: int, octets: pa.Array) -> pa.Array:
        if not self._in_bulk or payloads.charsets:
            return self._one_by_one(payloads, start, octets)
        may_be = pc.and_(pc.starts_with(octets, "{"), pc.ends_with(octets, "}"))
        odd = pc.indices_nonzero(pc.invert(pc.fill_null(may_be, False))).to_pylist()
        if len(odd) > len(octets) // _PARTS:
            return self._one_by_one(payloads, start, octets)
        # Those between the ones that are surely none.
        bounds = [-1, *odd, len(octets)]
        parts: list[pa.Array] = []
        for before, row in pairwise(bounds):
            parts += self._objects(payloads, start + before + 1, octets.slice(before + 1, row - before - 1))
            if row < len(octets):
                parts.append(self._one_by_one(payloads, start + row, octets.slice(row, 1)))
        return pa.concat_arrays(parts)

    def _one_by_one(self, payloads: Payloads, start: int, octets: pa.Array) -> pa.Array:
        return read_rows(self._value, self.kind, payloads, start, octets)

    def _objects(self, payloads: Payloads, start: int, octets: pa.Array) -> Iterator[pa.Array]:
        """Yield the values of bodies that begin with { and end with }."""
        at = errors = 0
        while at < len(octets):
            rest = octets.slice(at)
            found, row = self._bulk(rest)
            if found is not None:
                yield found
                return
            errors += 1
            if row is None or errors > _PARTS:
                yield from self._parts(payloads, start + at, rest)
                return
            before = rest.slice(0, row)
            found = self._bulk(before)[0] if row else None
            if found is not None:
                yield found
            elif row:
                yield from self._parts(payloads, start + at, before)
            yield self._one_by_one(payloads, start + at + row, rest.slice(row, 1))
            at += row + 1

    def _parts(self, payloads: Payloads, start: int, octets: pa.Array) -> Iterator[pa.Array]:
        """Yield the values of bodies that could not be read in bulk."""
        size = -(-len(octets) // _PARTS)
        pieces = [(at, octets.slice(at, size)) for at in range(0, len(octets), size)]
        found = [] if len(octets) <= _FEW else [self._bulk(piece)[0] for _, piece in pieces]
        if all(values is None for values in found):
            # Few of them are as expected.
            yield self._one_by_one(payloads, start, octets)
            return
        for (at, piece), values in zip(pieces, found, strict=True):
            if values is None:
                yield from self._parts(payloads, start + at, piece)
            else:
                yield values

    def _bulk(self, octets: pa.Array) -> tuple[pa.Array | None, int | None]:
        """Return the values of bodies that are all valid objects of this type; None if any may not be.

        Beside None is the number of the first one that is not, if Arrow says it.

        As each body begins with { and ends with }, none can go on in the next one: after a value, { is an error in an
        object or array. So there are as many values as bodies only if each body is one.
        """
        joined = pc.binary_join(pa.ListArray.from_arrays([0, len(octets)], octets), b"\n")
        try:
            # Arrow does not check what it puts into strings.
            text = joined.cast(pa.string())[0].as_buffer()
            table = arrow_json.read_json(
                pa.BufferReader(text),
                read_options=arrow_json.ReadOptions(use_threads=False, block_size=text.size + 1),
                parse_options=arrow_json.ParseOptions(
                    explicit_schema=pa.schema(list(self._read_kind)), unexpected_field_behavior="ignore"
                ),
            )
            if table.num_rows != len(octets):
                return None, None
            columns = [pa.concat_arrays(table.column(each.name).chunks) for each in self._read_kind]
            found = pa.StructArray.from_arrays(columns, fields=list(self._read_kind))
            found = found if self._read_kind == self.kind else found.cast(self.kind)
        except pa.ArrowException as error:
            row = _ROW.search(str(error))
            return None, int(row[1]) if row is not None and int(row[1]) < len(octets) else None
        return None if _is_beyond(found) else found, None

    def _value(self, octets: bytes, charset: str) -> tuple[Any, str | None]:
        value = load_json(octets, charset)
        if value is None:
            return None, None
        place = Place()
        try:
            fitted = self._fit(value, place)
        except RecursionError:
            raise BodyError("the body is nested too deeply") from None
        if not place.problems:
            return fitted, None
        more = len(place.problems) - 1
        return fitted, place.problems[0] + (f" (and {more} more)" if more else "")


def load_json(octets: bytes, charset: str = "") -> Any:
    """Return the value of a JSON body; numbers with a fraction are Decimal.

    Args:
        charset: Name of its character encoding; empty for UTF-8.
    Raises:
        BodyError: It is not JSON.
    """
    if not octets:
        raise BodyError("the body is empty")
    try:
        text = octets.removeprefix(_BOM).decode(charset or "utf-8")
    except UnicodeError as error:
        at = f" at byte {error.start}" if isinstance(error, UnicodeDecodeError) else ""
        raise BodyError(f"the body is not {charset or 'UTF-8'}{at}{registry_hint(octets)}") from None
    try:
        value = _loads(text)
        return _without_surrogates(value) if "\\u" in text or _SURROGATE.search(text) else value
    except RecursionError:
        raise BodyError("the body is nested too deeply") from None
    except InvalidOperation:
        raise BodyError("a number in the body has an exponent of too many digits") from None
    except ValueError as error:
        raise BodyError(f"the body is not JSON: {error}{registry_hint(octets)}") from None


def _loads(text: str) -> Any:
    try:
        return json.loads(text, parse_float=Decimal)
    except json.JSONDecodeError:
        raise
    except ValueError:
        # An integer of more than 4,300 digits.
        return json.loads(text, parse_float=Decimal, parse_int=Decimal)


def _without_surrogates(value: Any) -> Any:
    """Replace halves of surrogate pairs, which no UTF-8 text can have."""
    if isinstance(value, str):
        return _SURROGATE.sub("\ufffd", value)
    if isinstance(value, list):
        return [_without_surrogates(each) for each in value]
    if isinstance(value, dict):
        return {_without_surrogates(name): _without_surrogates(each) for name, each in value.items()}
    return value


def _suits_bulk(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        names = [each.name for each in kind]
        return kind.num_fields > 0 and len(set(names)) == len(names) and all(_suits_bulk(each.type) for each in kind)
    if pa.types.is_list(kind):
        return _suits_bulk(kind.value_type)
    return any(is_one(kind) for is_one in _BULK)


def _read_as(kind: pa.DataType) -> pa.DataType:
    """Return the type as which Arrow reads what is cast to a type."""
    if pa.types.is_struct(kind):
        return pa.struct([(each.name, _read_as(each.type)) for each in kind])
    if pa.types.is_list(kind):
        return pa.list_(_read_as(kind.value_type))
    return _READ_AS.get(kind, kind)


def _is_beyond(values: pa.Array) -> bool:
    """Return whether a number is too large for its type, as an infinite one, or a time is not one that Spark has."""
    kind = values.type
    if pa.types.is_struct(kind):
        return any(_is_beyond(values.field(number)) for number in range(kind.num_fields))
    if pa.types.is_list(kind):
        return _is_beyond(values.flatten())
    if pa.types.is_floating(kind):
        return bool(pc.any(pc.is_inf(values)).as_py())
    if pa.types.is_decimal128(kind):
        # Arrow does not count the digits before the point.
        ends = pc.min_max(values).as_py()
        most = 10 ** (kind.precision - kind.scale)
        return ends["min"] is not None and not -most < ends["min"] <= ends["max"] < most
    if pa.types.is_timestamp(kind) or pa.types.is_date32(kind):
        allowed = _DAYS if pa.types.is_date32(kind) else TIMES
        ends = pc.min_max(values.cast(pa.int32() if pa.types.is_date32(kind) else pa.int64())).as_py()
        return ends["min"] is not None and (ends["min"] not in allowed or ends["max"] not in allowed)
    return False
