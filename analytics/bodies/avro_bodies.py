"""Reads Avro bodies into an Arrow array."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, Final, NamedTuple, TypeAlias
from uuid import UUID

import fastavro
import pyarrow as pa
from fastavro.schema import SchemaParseException, UnknownType, fingerprint, to_parsing_canonical_form

from leveret.analytics.bodies.payloads import (
    REGISTRY_BYTES,
    BodyError,
    Payloads,
    read_rows,
    registry_hint,
    require_number,
)
from leveret.analytics.bodies.schema_registry import RegistryError, registry_at
from leveret.analytics.errors import OptionError

#: What a container file and a single object begin with.
_FILE: Final = b"Obj\x01"
_SINGLE: Final = b"\xc3\x01"
_FINGERPRINT_BYTES: Final = 8
_CUT: Final = "it ends too early, or was written with another version of the schema"
_NOT_OF_SCHEMA: Final = "the body is not Avro of this schema"
_TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
#: Arrow types by type, or by logical type.
_PLAIN: Final[dict[str, Any]] = {
    "null": pa.string(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "fixed": pa.binary(),
    "string": pa.string(),
    "enum": pa.string(),
    "date": pa.date32(),
    "timestamp-millis": _TIMESTAMP,
    "timestamp-micros": _TIMESTAMP,
    "local-timestamp-millis": pa.timestamp("us"),
    "local-timestamp-micros": pa.timestamp("us"),
    "time-millis": pa.int32(),
    "time-micros": pa.int64(),
}
#: The wider one of two numeric types in a union.
_WIDER: Final = {"int": "long", "float": "double"}
#: Classes of the values of a type, in a union.
_CLASSES: Final[dict[str, tuple[type, ...]]] = {
    "boolean": (bool,),
    "int": (int,),
    "long": (int,),
    "float": (float,),
    "double": (float,),
    "bytes": (bytes,),
    "string": (str, UUID),
    "date": (date,),
    "decimal": (Decimal,),
    "array": (list,),
    "map": (dict,),
}
_DECIMAL_DIGITS_MAX: Final = 38
#: What is raised for a text that is no schema.
_NO_SCHEMA: Final = (ValueError, TypeError, KeyError, AttributeError, RecursionError, SchemaParseException, UnknownType)
_Convert: TypeAlias = Callable[[Any], Any]


class _Kind(NamedTuple):
    """A type of Avro.

    Attributes:
        kind: The Arrow type.
        convert: Makes a value for it of one of fastavro.
    """

    kind: pa.DataType
    convert: _Convert


class AvroBodies:
    """Reads Avro bodies: data without a schema, single objects, and container files with one of them.

    Args:
        text: The schema as JSON.
        needs: Texts of schemas that it refers to.
        registry: URL or directory of the registry that has the schemas with which bodies were written: all of them
            begin with its five bytes. Empty for none.
    Raises:
        OptionError: It is not a schema, or Spark has no type for it.
    """

    def __init__(self, text: str, needs: Sequence[str] = (), registry: str = "") -> None:
        self._named: dict[str, Any] = {}
        try:
            self._schema = _parsed(text, needs, self._named)
            self.kind, self._convert = _kind_of(self._schema, self._named, ())
        except _NO_SCHEMA as error:
            raise OptionError(
                f"the schema of bodies is not an Avro schema: {str(error) or type(error).__name__}"
            ) from error
        self._registry = registry_at(registry) if registry else None
        #: The schemas of the registry, and why others cannot be used, by number.
        self._writers: dict[int, Any] = {}
        self._refused: dict[int, str] = {}
        self._single = _SINGLE + bytes.fromhex(fingerprint(to_parsing_canonical_form(self._schema), "CRC-64-AVRO"))

    def read(self, payloads: Payloads) -> pa.Array:
        """Return the values of bodies, and add what is wrong with some to the reasons."""
        return read_rows(self._value, self.kind, payloads, 0, payloads.octets)

    def _value(self, octets: bytes, _charset: str) -> tuple[Any, None]:
        if self._registry is not None:
            return self._of_registry(octets), None
        try:
            found = self._from_file(octets) if octets.startswith(_FILE) else self._datum(octets)
            return self._convert(found), None
        except BodyError as error:
            raise BodyError(f"{error}{registry_hint(octets)}") from error
        except Exception as error:
            if octets.startswith(_SINGLE) and not octets.startswith(self._single):
                text = octets[len(_SINGLE) :][:_FINGERPRINT_BYTES].hex()
                raise BodyError(f"the body was written with another schema, with the fingerprint {text}") from error
            reason = _CUT if isinstance(error, EOFError) else str(error) or type(error).__name__
            raise BodyError(f"{_NOT_OF_SCHEMA}: {reason}{registry_hint(octets)}") from error

    def _datum(self, octets: bytes) -> Any:
        source = io.BytesIO(octets)
        if octets.startswith(self._single):
            source.seek(len(self._single))
        found = fastavro.schemaless_reader(source, self._schema, None, return_named_type=True)
        if left := len(octets) - source.tell():
            raise BodyError(f"{_NOT_OF_SCHEMA}: {left} bytes are left at its end")
        return found

    def _of_registry(self, octets: bytes) -> Any:
        """Return the value of a body that was written with a schema of the registry."""
        number = require_number(octets)
        writer = self._writer(number)
        source = io.BytesIO(octets)
        source.seek(REGISTRY_BYTES)
        try:
            found = fastavro.schemaless_reader(source, writer, self._schema, return_named_type=True)
            if left := len(octets) - source.tell():
                raise BodyError(f"{left} bytes are left at its end")
            return self._convert(found)
        except Exception as error:
            reason = "it ends too early" if isinstance(error, EOFError) else str(error) or type(error).__name__
            raise BodyError(f"the body is not Avro of schema {number}, read as that of the rule: {reason}") from error

    def _writer(self, number: int) -> Any:
        """Return the parsed schema with a number."""
        assert self._registry is not None
        if number not in self._writers and number not in self._refused:
            try:
                found = self._registry.schema(number, "avro")
                self._writers[number] = _parsed(found.content, dict(found.needs).values(), {})
            except RegistryError as error:
                self._refused[number] = str(error)
            except _NO_SCHEMA as error:
                reason = str(error) or type(error).__name__
                self._refused[number] = f"schema {number} of {self._registry.shown} is not an Avro schema: {reason}"
        if number in self._refused:
            raise BodyError(self._refused[number])
        return self._writers[number]

    def _from_file(self, octets: bytes) -> Any:
        found = list(fastavro.reader(io.BytesIO(octets), self._schema, return_named_type=True))
        if len(found) != 1:
            raise BodyError(f"the body is an Avro file with {len(found)} values, not with one")
        return found[0]


def _parsed(text: str | bytes, needs: Iterable[str], named: dict[str, Any]) -> Any:
    for each in needs:
        fastavro.parse_schema(json.loads(each), named)
    return fastavro.parse_schema(json.loads(text), named)


def _kind_of(schema: Any, named: Mapping[str, Any], within: tuple[str, ...]) -> _Kind:
    """Return the type of a schema."""
    if isinstance(schema, list):
        return _union(schema, named, within)
    if isinstance(schema, str):
        return _kind_of(named[schema], named, within) if schema in named else _Kind(_PLAIN[schema], _same)
    name = schema["type"]
    if name in ("record", "error"):
        return _record(schema, named, within)
    if name == "array":
        item = _kind_of(schema["items"], named, within)
        return _Kind(pa.list_(item.kind), lambda value: [_or_null(item.convert, each) for each in value])
    if name == "map":
        item = _kind_of(schema["values"], named, within)
        return _Kind(
            pa.map_(pa.string(), item.kind),
            lambda value: [(key, _or_null(item.convert, each)) for key, each in value.items()],
        )
    logical = schema.get("logicalType", "")
    if logical == "decimal" and schema["precision"] <= _DECIMAL_DIGITS_MAX:
        return _Kind(pa.decimal128(schema["precision"], schema.get("scale", 0)), _same)
    if not isinstance(name, str) or name in named:
        return _kind_of(name, named, within)
    return _Kind(_PLAIN[logical if logical in _PLAIN else name], _CONVERT.get(logical, _same))


def _record(schema: Mapping[str, Any], named: Mapping[str, Any], within: tuple[str, ...]) -> _Kind:
    name = schema["name"]
    if name in within:
        raise ValueError(f"{name} contains itself, for which Spark has no type")
    fields = [(each["name"], _kind_of(each["type"], named, (*within, name))) for each in schema["fields"]]
    if not fields:
        # Parquet has no struct without fields.
        return _Kind(pa.string(), lambda _value: "{}")
    return _Kind(
        pa.struct([(field, each.kind) for field, each in fields]),
        lambda value: {field: _or_null(each.convert, value[field]) for field, each in fields},
    )


def _union(branches: Sequence[Any], named: Mapping[str, Any], within: tuple[str, ...]) -> _Kind:
    """Return the type of a union: the only one beside null, or a struct of members, as Spark's from_avro has it."""
    names = {_name(each) for each in branches}
    members = [each for each in branches if _name(each) != "null" and _WIDER.get(_name(each)) not in names]
    kinds = [_kind_of(each, named, within) for each in members]
    if not members:
        return _Kind(_PLAIN["null"], _same)
    if len(members) == 1:
        only = kinds[0]
        return _Kind(only.kind, lambda value: only.convert(_bare(value)))
    choices = [(f"member{number}", _name(each), kinds[number]) for number, each in enumerate(members)]

    def convert(value: Any) -> dict[str, Any]:
        for field, name, each in choices:
            if value[0] == name if isinstance(value, tuple) else type(value) in _classes_of(name):
                return {field: each.convert(_bare(value))}
        raise BodyError(f"{_NOT_OF_SCHEMA}: a union has no {type(value).__name__}")

    return _Kind(pa.struct([(field, each.kind) for field, _, each in choices]), convert)


def _name(schema: Any) -> str:
    """Return what tells a branch of a union from the others: its name if it has one, else its type."""
    if isinstance(schema, str):
        return schema
    found = schema.get("name") or schema.get("logicalType") or schema["type"]
    return str(found if found in _CLASSES or "name" in schema or found in _LOGICAL else schema["type"])


def _classes_of(name: str) -> tuple[type, ...]:
    return _LOGICAL.get(name) or _CLASSES.get(name, ())


def _bare(value: Any) -> Any:
    return value[1] if isinstance(value, tuple) else value


def _or_null(convert: _Convert, value: Any) -> Any:
    return None if value is None else convert(value)


def _same(value: Any) -> Any:
    return value


def _microseconds(value: time) -> int:
    return ((value.hour * 60 + value.minute) * 60 + value.second) * 1_000_000 + value.microsecond


#: Classes of the values of logical types.
_LOGICAL: Final[dict[str, tuple[type, ...]]] = {
    **dict.fromkeys(
        ("timestamp-millis", "timestamp-micros", "local-timestamp-millis", "local-timestamp-micros"), (datetime,)
    ),
    **dict.fromkeys(("time-millis", "time-micros"), (time,)),
    "uuid": (UUID,),
}
#: Makes a value of what fastavro has for a logical type. Spark has no time of day.
_CONVERT: Final[dict[str, _Convert]] = {
    "uuid": str,
    "time-millis": lambda value: _microseconds(value) // 1000,
    "time-micros": _microseconds,
}
