"""Reads Protobuf bodies into an Arrow array."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from typing import Any, Final, NamedTuple, TypeAlias, cast

import pyarrow as pa
from google.protobuf import json_format, message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError, Message

from leveret.analytics.bodies.payloads import (
    REGISTRY_BYTES,
    BodyError,
    Payloads,
    read_rows,
    registry_hint,
    require_number,
)
from leveret.analytics.bodies.schema_registry import RegistryError, registry_at
from leveret.analytics.bodies.value_types import TIMES
from leveret.analytics.errors import OptionError

#: Arrow types by type of a field. Spark has no unsigned types.
_PLAIN: Final[dict[int, Any]] = {
    FieldDescriptor.TYPE_DOUBLE: pa.float64(),
    FieldDescriptor.TYPE_FLOAT: pa.float32(),
    FieldDescriptor.TYPE_INT32: pa.int32(),
    FieldDescriptor.TYPE_SINT32: pa.int32(),
    FieldDescriptor.TYPE_SFIXED32: pa.int32(),
    FieldDescriptor.TYPE_UINT32: pa.int64(),
    FieldDescriptor.TYPE_FIXED32: pa.int64(),
    FieldDescriptor.TYPE_INT64: pa.int64(),
    FieldDescriptor.TYPE_SINT64: pa.int64(),
    FieldDescriptor.TYPE_SFIXED64: pa.int64(),
    FieldDescriptor.TYPE_UINT64: pa.decimal128(20, 0),
    FieldDescriptor.TYPE_FIXED64: pa.decimal128(20, 0),
    FieldDescriptor.TYPE_BOOL: pa.bool_(),
    FieldDescriptor.TYPE_STRING: pa.string(),
    FieldDescriptor.TYPE_BYTES: pa.binary(),
}
_TIMESTAMP: Final = "google.protobuf.Timestamp"
#: They are JSON by their nature.
_OF_JSON: Final = ("google.protobuf.Struct", "google.protobuf.Value", "google.protobuf.ListValue")
#: A message with the one field `value`, which says whether it is there.
_WRAPPERS: Final = frozenset(
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
#: Files that come with Protobuf.
_OWN: Final = re.compile(r"google/protobuf/([a-z_]+)\.proto")
#: Bits of the largest number in the place of a message.
_SHIFT_MAX: Final = 28
_NO_PLACE: Final = "the body does not have the place of its message behind the number of the schema"
_Convert: TypeAlias = Callable[[Any], Any]


class _Kind(NamedTuple):
    """A type of Protobuf.

    Attributes:
        kind: The Arrow type.
        convert: Makes a value for it of one of the library.
    """

    kind: pa.DataType
    convert: _Convert


class ProtobufBodies:
    """Reads Protobuf bodies.

    Args:
        descriptors: A FileDescriptorSet, as `protoc --include_imports --descriptor_set_out=FILE` writes it.
        name: Full name of the message, such as `shop.Order`; empty for the first one of the last file.
        registry: URL or directory of the registry that has the schemas with which bodies were written: all of them
            begin with its five bytes, and with the place of their message in the schema. Empty for none.
    Raises:
        OptionError: The descriptors are damaged or lack the message or what it imports.
    """

    def __init__(self, descriptors: bytes, name: str = "", registry: str = "") -> None:
        files = FileDescriptorSet()
        pool = DescriptorPool()
        try:
            files.ParseFromString(descriptors)
            known: set[str] = set()
            for each in files.file:
                if registry:
                    _add_imports(pool, each, known)
                pool.Add(each)
                known.add(each.name)
            found = pool.FindMessageTypeByName(name or _name_at(files, (0,)))
        except (DecodeError, TypeError, LookupError) as error:
            if not isinstance(error, LookupError):
                raise OptionError(
                    f"the schema of bodies is not a descriptor set of Protobuf with all imports: {error}"
                ) from error
            names = [
                f"{each.package}.{message.name}".lstrip(".") for each in files.file for message in each.message_type
            ]
            raise OptionError(
                f"the schema of bodies has no message '{name}'; it has {', '.join(names) or 'none'}"
            ) from None
        self._class = message_factory.GetMessageClass(found)
        self._name = found.full_name
        self.kind, self._convert = _message(found, ())
        self._registry = registry_at(registry) if registry else None
        #: Names of messages, by number of their schema in the registry and place there; or why there is none.
        self._written: dict[tuple[int, tuple[int, ...]], str | BodyError] = {}

    def read(self, payloads: Payloads) -> pa.Array:
        """Return the values of bodies, and add what is wrong with some to the reasons."""
        return read_rows(self._value, self.kind, payloads, 0, payloads.octets)

    def _value(self, octets: bytes, _charset: str) -> tuple[Any, None]:
        hint = "" if self._registry is not None else registry_hint(octets)
        if self._registry is not None:
            octets = self._without_number(octets)
        message = self._class()
        try:
            message.ParseFromString(octets)
            return self._convert(message), None
        except (DecodeError, json_format.Error, ValueError, TypeError, RecursionError) as error:
            raise BodyError(f"the body is not Protobuf of this message: {error}{hint}") from error

    def _without_number(self, octets: bytes) -> bytes:
        """Return what the message is, if the schema with which it was written says that it is this one.

        It is read as the rule's schema says: fields are told by their numbers, whichever version has written them.
        """
        number = require_number(octets)
        place, begin = _place(octets)
        if (number, place) not in self._written:
            self._written[number, place] = self._writer(number, place)
        found = self._written[number, place]
        if isinstance(found, BodyError):
            raise BodyError(str(found))
        if found != self._name:
            raise BodyError(f"the body is {found} of schema {number}, and the rule is of {self._name}")
        return octets[begin:]

    def _writer(self, number: int, place: tuple[int, ...]) -> str | BodyError:
        assert self._registry is not None
        try:
            content = self._registry.schema(number, "protobuf").content
            return _name_at(FileDescriptorSet.FromString(cast(bytes, content)), place)
        except RegistryError as error:
            return BodyError(str(error))
        except DecodeError as error:
            return BodyError(f"schema {number} of {self._registry.shown} is not a descriptor set of Protobuf: {error}")
        except LookupError:
            return BodyError(f"schema {number} of {self._registry.shown} has no message at {list(place)}")


def _place(octets: bytes) -> tuple[tuple[int, ...], int]:
    """Return the place of a body's message in its schema, and where the message begins.

    The place is the number of a message in the file, then of one inside it, and so on. It is encoded as their count and
    each of them, zigzag; a single zero is the first message.
    """
    numbers: list[int] = []
    at = REGISTRY_BYTES
    while not numbers or len(numbers) <= numbers[0]:
        value = shift = 0
        while True:
            if at >= len(octets) or shift > _SHIFT_MAX:
                raise BodyError(_NO_PLACE)
            value |= (octets[at] & 0x7F) << shift
            shift += 7
            at += 1
            if octets[at - 1] < 0x80:
                break
        numbers.append((value >> 1) ^ -(value & 1))
    if min(numbers) < 0:
        raise BodyError(_NO_PLACE)
    return tuple(numbers[1:]) or (0,), at


def _name_at(files: FileDescriptorSet, place: tuple[int, ...]) -> str:
    """Return the full name of a message of the last file.

    Raises:
        LookupError: It has none there.
    """
    file = files.file[-1]
    names, messages = [file.package] if file.package else [], file.message_type
    for number in place:
        if not 0 <= number < len(messages):
            raise LookupError(number)
        names.append(messages[number].name)
        messages = messages[number].nested_type
    return ".".join(names)


def _add_imports(pool: DescriptorPool, file: FileDescriptorProto, known: set[str]) -> None:
    """Add what a file imports and registries do not keep: Protobuf's own files, and empty ones for options alone."""
    for name in file.dependency:
        if name in known:
            continue
        known.add(name)
        added = FileDescriptorProto(name=name)
        own = _OWN.fullmatch(name)
        if own is not None:
            with suppress(ImportError):
                import_module(f"google.protobuf.{own[1]}_pb2").DESCRIPTOR.CopyToProto(added)
        _add_imports(pool, added, known)
        pool.Add(added)


def _message(descriptor: Descriptor, within: tuple[str, ...]) -> _Kind:
    """Return the type of a message."""
    name = descriptor.full_name
    if name == _TIMESTAMP:
        return _Kind(pa.timestamp("us", tz="UTC"), _microseconds)
    if name in _WRAPPERS:
        kind = _PLAIN[descriptor.fields_by_name["value"].type]
        return _Kind(kind, lambda value: value.value)
    if name in _OF_JSON or name in within or not descriptor.fields:
        # Spark has no type for what contains itself, and Parquet none for a struct without fields.
        return _Kind(pa.string(), _json)
    fields = [(each.name, *_field(each, (*within, name))) for each in descriptor.fields]
    return _Kind(
        pa.struct([(field, kind) for field, kind, _ in fields]),
        lambda value: {field: convert(value) for field, _, convert in fields},
    )


def _field(field: FieldDescriptor, within: tuple[str, ...]) -> _Kind:
    """Return the type of a field, and what takes its value from the message."""
    name = field.name
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        key, item = (_single(each, within) for each in field.message_type.fields)
        return _Kind(
            pa.map_(key.kind, item.kind),
            lambda value: [(key.convert(one), item.convert(each)) for one, each in getattr(value, name).items()],
        )
    single = _single(field, within)
    if field.is_repeated:
        return _Kind(pa.list_(single.kind), lambda value: [single.convert(each) for each in getattr(value, name)])
    if field.has_presence:
        return _Kind(single.kind, lambda value: single.convert(getattr(value, name)) if value.HasField(name) else None)
    return _Kind(single.kind, lambda value: single.convert(getattr(value, name)))


def _single(field: FieldDescriptor, within: tuple[str, ...]) -> _Kind:
    if field.message_type is not None:
        return _message(field.message_type, within)
    if field.enum_type is not None:
        names = {number: each.name for number, each in field.enum_type.values_by_number.items()}
        # A newer program may know more of them.
        return _Kind(pa.string(), lambda number: names.get(number, str(number)))
    return _Kind(_PLAIN[field.type], lambda value: value)


def _microseconds(moment: Any) -> int:
    found: int = moment.seconds * 1_000_000 + moment.nanos // 1000
    if found not in TIMES:
        raise BodyError(f"{moment.seconds} s is not a time that Spark has")
    return found


def _json(message: Message) -> str:
    return json_format.MessageToJson(message, preserving_proto_field_name=True, indent=None, ensure_ascii=False)
