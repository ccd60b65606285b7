"""Reads Protobuf bodies into an Arrow array."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeAlias

import pyarrow as pa
from google.protobuf import json_format, message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError, Message

from leveret.analytics.bodies.payloads import BodyError, Payloads, read_rows, registry_hint
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
        name: Full name of the message, such as `shop.Order`.
    Raises:
        OptionError: The descriptors are damaged or lack the message or what it imports.
    """

    def __init__(self, descriptors: bytes, name: str) -> None:
        files = FileDescriptorSet()
        pool = DescriptorPool()
        try:
            files.ParseFromString(descriptors)
            for each in files.file:
                pool.Add(each)
            found = pool.FindMessageTypeByName(name)
        except (DecodeError, TypeError) as error:
            raise OptionError(f"bodySchema is not a descriptor set of Protobuf with all imports: {error}") from error
        except KeyError:
            names = [
                f"{each.package}.{message.name}".lstrip(".") for each in files.file for message in each.message_type
            ]
            raise OptionError(f"bodySchema has no message '{name}'; it has {', '.join(names) or 'none'}") from None
        self._class = message_factory.GetMessageClass(found)
        self.kind, self._convert = _message(found, ())

    def read(self, payloads: Payloads) -> pa.Array:
        """Return the values of bodies, and add what is wrong with some to the reasons."""
        return read_rows(self._value, self.kind, payloads, 0, payloads.octets)

    def _value(self, octets: bytes, _charset: str) -> tuple[Any, None]:
        message = self._class()
        try:
            message.ParseFromString(octets)
            return self._convert(message), None
        except (DecodeError, json_format.Error, ValueError, TypeError, RecursionError) as error:
            raise BodyError(f"the body is not Protobuf of this message: {error}{registry_hint(octets)}") from error


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
