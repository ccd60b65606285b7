"""Finds the type of JSON bodies from some of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final, TypeAlias

import pyarrow as pa

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
