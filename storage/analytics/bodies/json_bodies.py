"""Reads JSON bodies into an Arrow array: in bulk where all are as expected, one by one where one is not."""

from __future__ import annotations

import json
import re
from decimal import Decimal, InvalidOperation
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json as arrow_json

from leveret.storage.analytics.bodies.compression import Payloads
from leveret.storage.analytics.bodies.errors import BodyError
from leveret.storage.analytics.bodies.json_values import Place, fit_into
from leveret.storage.analytics.bodies.rows import read_rows

#: Bodies that are read in bulk at once; if one of them is not as expected, these are read one by one.
_AT_ONCE: Final = 1000
_BOM: Final = b"\xef\xbb\xbf"
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
#: Types for which Arrow's reader does the same as reading one by one.
_BULK: Final = (pa.types.is_string, pa.types.is_int64, pa.types.is_int32, pa.types.is_boolean)


class JsonBodies:
    """Reads JSON bodies.

    Args:
        kind: The type of the values.
    """

    def __init__(self, kind: pa.DataType) -> None:
        self.kind = kind
        self._fit = fit_into(kind)
        self._in_bulk = pa.types.is_struct(kind) and kind.num_fields > 0 and _suits_bulk(kind)

    def read(self, payloads: Payloads) -> pa.Array:
        """Return the values of bodies, and add what is wrong with some to the reasons."""
        octets = payloads.octets
        chunks = [
            self._chunk(payloads, start, octets.slice(start, _AT_ONCE)) for start in range(0, len(octets), _AT_ONCE)
        ]
        return pa.concat_arrays(chunks) if chunks else pa.array([], self.kind)

    def _chunk(self, payloads: Payloads, start: int, octets: pa.Array) -> pa.Array:
        if self._in_bulk and not payloads.charsets:
            found = self._bulk(octets)
            if found is not None:
                return found
        return read_rows(self._value, self.kind, payloads, start, octets)

    def _bulk(self, octets: pa.Array) -> pa.Array | None:
        """Return the values of bodies that are all valid objects of this type; None if any may not be.

        Where each body begins with { and ends with }, none can go on in the next one: after a value, { is an error in
        an object or array. So there are as many values as bodies only if each body is one.
        """
        lengths = np.diff(np.frombuffer(octets.buffers()[1], np.int32, len(octets) + 1, octets.offset * 4))
        if octets.null_count or not lengths.all():
            return None
        bodies = octets.to_pylist()
        if not all(body[0] == 0x7B and body[-1] == 0x7D for body in bodies):
            return None
        joined = b"\n".join(bodies)
        try:
            # Arrow does not check what it puts into strings.
            joined.decode()
            table = arrow_json.read_json(
                pa.BufferReader(joined),
                read_options=arrow_json.ReadOptions(use_threads=False, block_size=len(joined) + 1),
                parse_options=arrow_json.ParseOptions(
                    explicit_schema=pa.schema(list(self.kind)), unexpected_field_behavior="ignore"
                ),
            )
        except (UnicodeDecodeError, pa.ArrowException):
            return None
        if table.num_rows != len(bodies):
            return None
        columns = [pa.concat_arrays(table.column(each.name).chunks) for each in self.kind]
        found = pa.StructArray.from_arrays(columns, fields=list(self.kind))
        # What is too large for a double is infinite here.
        return None if _has_infinity(found) else found

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
        octets: The body.
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
        raise BodyError(f"the body is not {charset or 'UTF-8'}{at}") from None
    try:
        value = _loads(text)
        return _without_surrogates(value) if "\\u" in text or _SURROGATE.search(text) else value
    except RecursionError:
        raise BodyError("the body is nested too deeply") from None
    except InvalidOperation:
        raise BodyError("a number in the body has an exponent of too many digits") from None
    except ValueError as error:
        raise BodyError(f"the body is not JSON: {error}") from None


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
    return pa.types.is_float64(kind) or any(is_one(kind) for is_one in _BULK)


def _has_infinity(values: pa.Array) -> bool:
    if pa.types.is_struct(values.type):
        return any(_has_infinity(values.field(number)) for number in range(values.type.num_fields))
    if pa.types.is_list(values.type):
        return _has_infinity(values.flatten())
    return pa.types.is_float64(values.type) and bool(pc.any(pc.is_inf(values)).as_py())
