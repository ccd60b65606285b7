"""Values of JSON: finds the type of some of them, and fits them into types.

What does not fit becomes null, and a problem that says where and why.
"""

from __future__ import annotations

import base64
import binascii
import json
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal, InvalidOperation, localcontext
from typing import Any, Final, TypeAlias

import pyarrow as pa

from leveret.analytics.bodies.payloads import BodyError
from leveret.analytics.bodies.value_types import TIMES, type_ddl
from leveret.analytics.errors import OptionError
from leveret.analytics.times import parse_time

_SHOWN_MAX: Final = 40
#: The largest number of 32 bits.
_FLOAT_MAX: Final = (2 - 2**-23) * 2.0**127


class Place:
    """Where a value is that is being fitted, and what did not fit.

    Attributes:
        path: Names of fields and numbers of elements that lead to the value.
        problems: What did not fit, and where.
    """

    __slots__ = ("path", "problems")

    def __init__(self) -> None:
        self.path: list[str | int] = []
        self.problems: list[str] = []

    def note(self, error: BodyError) -> None:
        """Note that the value here does not fit."""
        where = ""
        for step in self.path:
            where += f"[{step}]" if isinstance(step, int) else f".{step}" if where else step
        self.problems.append(f"{where}: {error}" if where else str(error))


#: Fits a value other than null into a type; raises BodyError if it is of another type.
Fit: TypeAlias = Callable[[Any, Place], Any]


def fit_into(kind: pa.DataType) -> Fit:
    """Return the function that fits values of JSON into a type."""
    if pa.types.is_struct(kind):
        return _struct([(each.name, fit_into(each.type)) for each in kind])
    if pa.types.is_list(kind):
        return _array(fit_into(kind.value_type))
    if pa.types.is_map(kind):
        return _map(fit_into(kind.key_type), fit_into(kind.item_type))
    if pa.types.is_integer(kind):
        return _integer(kind)
    if pa.types.is_decimal(kind):
        return _decimal(kind)
    return _SCALARS[kind]


def json_text(value: Any) -> str:
    """Return a value as JSON; numbers that are Decimal keep all their digits."""
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, dict):
        return "{" + ",".join(f"{json_text(name)}:{json_text(each)}" for name, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(json_text, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def _is_not(value: Any, wanted: str) -> BodyError:
    text = json_text(value)
    return BodyError(f"{text if len(text) <= _SHOWN_MAX else text[:_SHOWN_MAX] + '…'} is not a {wanted}")


def _struct(fields: list[tuple[str, Fit]]) -> Fit:
    def fit(value: Any, place: Place) -> dict[str, Any]:
        if isinstance(value, list) and len(value) == len(fields) > 1 and not place.path:
            # Celery's bodies are arrays with a meaning for each place.
            value = {name: each for (name, _), each in zip(fields, value, strict=True)}
        elif not isinstance(value, dict):
            raise _is_not(value, "JSON object")
        row = {}
        for name, fit_field in fields:
            found = value.get(name)
            if found is not None:
                place.path.append(name)
                row[name] = _fitted(fit_field, found, place)
                place.path.pop()
        return row

    return fit


def _fitted(fit: Fit, value: Any, place: Place) -> Any:
    try:
        return fit(value, place)
    except BodyError as error:
        place.note(error)
        return None


def _array(fit_element: Fit) -> Fit:
    def fit(value: Any, place: Place) -> list[Any]:
        if not isinstance(value, list):
            raise _is_not(value, "JSON array")
        row = []
        for number, each in enumerate(value):
            place.path.append(number)
            row.append(None if each is None else _fitted(fit_element, each, place))
            place.path.pop()
        return row

    return fit


def _map(fit_key: Fit, fit_item: Fit) -> Fit:
    def fit(value: Any, place: Place) -> list[tuple[Any, Any]]:
        if not isinstance(value, dict):
            raise _is_not(value, "JSON object")
        row = []
        for name, each in value.items():
            place.path.append(name)
            key = _fitted(fit_key, name, place)
            if key is not None:
                row.append((key, None if each is None else _fitted(fit_item, each, place)))
            place.path.pop()
        return row

    return fit


def _number(value: Any, wanted: str) -> int | float | Decimal:
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        raise _is_not(value, wanted)
    return value


def _integer(kind: pa.DataType) -> Fit:
    name = type_ddl(kind)
    bits = kind.bit_width - 1
    allowed = range(-(1 << bits), 1 << bits)

    def fit(value: Any, _place: Place) -> int:
        if type(value) is int and value in allowed:
            return value
        number = Decimal(_number(value, name))
        # A range is compared first: the integer of 1e999999 would take all memory.
        if not number.is_finite() or not allowed[0] <= number <= allowed[-1] or number != number.to_integral_value():
            raise _is_not(value, name)
        return int(number)

    return fit


def _decimal(kind: pa.DataType) -> Fit:
    name = type_ddl(kind)
    step = Decimal(1).scaleb(-kind.scale)

    def fit(value: Any, _place: Place) -> Decimal:
        try:
            found = Decimal(value) if isinstance(value, str) else Decimal(_number(value, name))
            with localcontext(prec=kind.precision):
                rounded = found.quantize(step)
        except InvalidOperation:
            raise _is_not(value, name) from None
        if not rounded.is_finite():
            raise _is_not(value, name)
        return rounded

    return fit


def _double(value: Any, _place: Place, name: str = "double", most: float = sys.float_info.max) -> float:
    try:
        found = float(_number(value, name))
    except OverflowError:
        raise _is_not(value, name) from None
    # Infinity can be written, and is a float then; 1e400 is a Decimal and cannot be kept.
    if abs(found) > most and not isinstance(value, float):
        raise _is_not(value, name)
    return found


def _float(value: Any, place: Place) -> float:
    return _double(value, place, "float", _FLOAT_MAX)


def _boolean(value: Any, _place: Place) -> bool:
    if not isinstance(value, bool):
        raise _is_not(value, "boolean")
    return value


def _string(value: Any, _place: Place) -> str:
    return value if isinstance(value, str) else json_text(value)


def _binary(value: Any, _place: Place) -> bytes:
    try:
        return base64.b64decode(value, validate=True)
    except (TypeError, ValueError, binascii.Error):
        raise _is_not(value, "text in base64") from None


def _date(value: Any, _place: Place) -> date:
    try:
        return date.fromisoformat(value)
    except (TypeError, ValueError):
        raise _is_not(value, "date") from None


def _timestamp(value: Any, _place: Place) -> int:
    try:
        found = parse_time(value if isinstance(value, str) else str(_number(value, "timestamp")))
    except OptionError:
        raise _is_not(value, "timestamp") from None
    if found not in TIMES:
        raise _is_not(value, "timestamp")
    return found


_SCALARS: Final[dict[Any, Fit]] = {
    pa.string(): _string,
    pa.float64(): _double,
    pa.float32(): _float,
    pa.bool_(): _boolean,
    pa.binary(): _binary,
    pa.date32(): _date,
    pa.timestamp("us", tz="UTC"): _timestamp,
    pa.timestamp("us"): _timestamp,
}
#: An object with more different names than this has data for names, and becomes a map.
_FIELDS_MAX: Final = 200
#: What is nested deeper is text.
_DEPTH_MAX: Final = 20
_BIGINT: Final = range(-(1 << 63), 1 << 63)


@dataclass(slots=True)
class _Object:
    """An object: what is known of its fields, in the order in which they were first seen."""

    fields: dict[str, _Kind] = field(default_factory=dict)


@dataclass(slots=True)
class _Array:
    """An array: what is known of its elements."""

    element: _Kind = None


#: What is known of a value: the Arrow type of a scalar, an object, an array; None if it was always null.
_Kind: TypeAlias = "pa.DataType | _Object | _Array | None"
_TEXT: Final = pa.string()


def infer_type(values: Iterable[Any]) -> pa.DataType:
    """Return a type for values of JSON: null for what is missing, text for what has no common type.

    If there are objects, the type is that of the objects. If there are arrays, all of the same length, whose elements
    have no common type, it is a struct with the fields `_1`, `_2` and so on.

    Args:
        values: Values as load_json() returns them.
    """
    known = [value for value in values if value is not None]
    for kind in (dict, list):
        if chosen := [value for value in known if isinstance(value, kind)]:
            known = chosen
            break
    places = _places(known)
    if places is not None:
        return pa.struct([(f"_{number}", _finished(each)) for number, each in enumerate(places, 1)])
    merged: _Kind = None
    for value in known:
        merged = _merged(merged, _kind_of(value, 0))
    return _finished(merged)


def _places(values: list[Any]) -> list[_Kind] | None:
    """Return what is known of each place, if all values are arrays of one length, and their elements differ in type."""
    lengths = {len(value) if isinstance(value, list) else 0 for value in values}
    if len(lengths) != 1 or not 1 < max(lengths) <= _FIELDS_MAX:
        return None
    places: list[_Kind] = [None] * max(lengths)
    for value in values:
        places = [_merged(place, _kind_of(each, 0)) for place, each in zip(places, value, strict=True)]
    common: _Kind = None
    for value in values:
        for each in value:
            common = _merged(common, _kind_of(each, 0))
    return places if _is_text(common) and not all(map(_is_text, places)) else None


def _kind_of(value: Any, depth: int) -> _Kind:
    if value is None:
        return None
    if depth > _DEPTH_MAX:
        return _TEXT
    if isinstance(value, dict):
        return _Object({name: _kind_of(each, depth + 1) for name, each in value.items()})
    if isinstance(value, list):
        element: _Kind = None
        for each in value:
            element = _merged(element, _kind_of(each, depth + 1))
        return _Array(element)
    if isinstance(value, bool):
        return pa.bool_()
    if isinstance(value, int):
        # Text has all of its digits, a double has not.
        return pa.int64() if value in _BIGINT else _TEXT
    if isinstance(value, Decimal):
        # Without a fraction or an exponent it is an integer that was too long to be an int.
        return _TEXT if value.as_tuple().exponent == 0 and abs(value) > _BIGINT[-1] else pa.float64()
    return pa.float64() if isinstance(value, float) else _TEXT


def _merged(one: _Kind, other: _Kind) -> _Kind:
    """Return what is known of a value that is sometimes the one and sometimes the other."""
    if one is None or other is None:
        return other if one is None else one
    if isinstance(one, _Object) and isinstance(other, _Object):
        for name, kind in other.fields.items():
            one.fields[name] = _merged(one.fields.get(name), kind)
        return one
    if isinstance(one, _Array) and isinstance(other, _Array):
        one.element = _merged(one.element, other.element)
        return one
    if not isinstance(one, pa.DataType) or not isinstance(other, pa.DataType):
        return _TEXT
    if one == other:
        return one
    return pa.float64() if {one, other} == {pa.int64(), pa.float64()} else _TEXT


def _is_text(kind: _Kind) -> bool:
    return isinstance(kind, pa.DataType) and kind == _TEXT


def _finished(kind: _Kind) -> pa.DataType:
    if isinstance(kind, _Array):
        return pa.list_(_finished(kind.element))
    if isinstance(kind, _Object) and len(kind.fields) > _FIELDS_MAX:
        item: _Kind = None
        for each in kind.fields.values():
            item = _merged(item, each)
        return pa.map_(pa.string(), _finished(item))
    if isinstance(kind, _Object) and kind.fields:
        return pa.struct([(name, _finished(each)) for name, each in kind.fields.items()])
    # Nothing is known of what was always null or empty; neither has Parquet a struct without fields.
    return _TEXT if kind is None or isinstance(kind, _Object) else kind
