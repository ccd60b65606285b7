from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from google.protobuf import message_factory, struct_pb2, timestamp_pb2, wrappers_pb2
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message
from hypothesis import given
from hypothesis import strategies as st

from leveret.analytics.bodies.protobuf_bodies import ProtobufBodies
from leveret.analytics.bodies.value_types import type_ddl
from leveret.analytics.errors import OptionError
from tests.unit.analytics.bodies.payloads import read

_IMPORTS = (timestamp_pb2, wrappers_pb2, struct_pb2)


def descriptors() -> bytes:
    """What protoc writes for a file with the message shop.Order and what it imports."""
    file = FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3")
    file.dependency.extend(each.DESCRIPTOR.name for each in _IMPORTS)
    size = file.enum_type.add(name="Size")
    for number, name in enumerate(("SMALL", "LARGE")):
        size.value.add(name=name, number=number)
    order = file.message_type.add(name="Order")
    order.oneof_decl.add(name="_maybe")
    line = order.nested_type.add(name="Line")
    _field(line, "count", "TYPE_UINT32")
    _field(line, "inner", "TYPE_MESSAGE", of=".shop.Order.Line")
    entry = order.nested_type.add(name="TagsEntry")
    entry.options.map_entry = True
    _field(entry, "key", "TYPE_STRING")
    _field(entry, "value", "TYPE_MESSAGE", of=".shop.Order.Line")
    _field(order, "id", "TYPE_UINT64")
    _field(order, "note", "TYPE_STRING")
    _field(order, "maybe", "TYPE_INT32", optional=True)
    _field(order, "size", "TYPE_ENUM", of=".shop.Size")
    _field(order, "lines", "TYPE_MESSAGE", of=".shop.Order.Line", repeated=True)
    _field(order, "tags", "TYPE_MESSAGE", of=".shop.Order.TagsEntry", repeated=True)
    _field(order, "at", "TYPE_MESSAGE", of=".google.protobuf.Timestamp")
    _field(order, "price", "TYPE_MESSAGE", of=".google.protobuf.DoubleValue")
    _field(order, "free", "TYPE_MESSAGE", of=".google.protobuf.Struct")
    _field(order, "raw", "TYPE_BYTES", repeated=True)
    files = FileDescriptorSet()
    for each in _IMPORTS:
        each.DESCRIPTOR.CopyToProto(files.file.add())
    files.file.append(file)
    return files.SerializeToString()


def _field(
    message: DescriptorProto, name: str, kind: str, *, of: str = "", repeated: bool = False, optional: bool = False
) -> None:
    label = FieldDescriptorProto.LABEL_REPEATED if repeated else FieldDescriptorProto.LABEL_OPTIONAL
    field = message.field.add(
        name=name, number=len(message.field) + 1, type=FieldDescriptorProto.Type.Value(kind), label=label
    )
    if of:
        field.type_name = of
    if optional:
        field.proto3_optional = True
        field.oneof_index = 0


def order_class() -> Any:
    pool = DescriptorPool()
    for each in FileDescriptorSet.FromString(descriptors()).file:
        pool.Add(each)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))


ORDER = order_class()
READER = ProtobufBodies(descriptors(), "shop.Order")
DEFAULTS = {
    "id": Decimal(0), "note": "", "maybe": None, "size": "SMALL", "lines": [], "tags": [], "at": None, "price": None,
    "free": None, "raw": [],
}  # fmt: skip


def encoded(**values: Any) -> bytes:
    message: Message = ORDER(**values)
    return message.SerializeToString()


def test_types() -> None:
    assert type_ddl(READER.kind) == (
        "struct<`id`: decimal(20, 0), `note`: string, `maybe`: int, `size`: string, "
        "`lines`: array<struct<`count`: bigint, `inner`: string>>, "
        "`tags`: map<string, struct<`count`: bigint, `inner`: string>>, `at`: timestamp, `price`: double, "
        "`free`: string, `raw`: array<binary>>"
    )


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "id": st.integers(0, (1 << 64) - 1),
            "note": st.text(st.characters(codec="utf-8")),
            "maybe": st.integers(-(1 << 31), (1 << 31) - 1),
            "raw": st.lists(st.binary(), max_size=3),
        },
    )
)
def test_messages_come_back(values: dict[str, Any]) -> None:
    wanted = DEFAULTS | values | {"id": Decimal(values.get("id", 0))}
    assert read(READER, encoded(**values)) == [(wanted, None)]


@given(st.binary(max_size=40))
def test_any_bytes_are_read_or_have_a_reason(octets: bytes) -> None:
    ((value, reason),) = read(READER, octets)
    assert (value is None) == (reason is not None)


def test_values() -> None:
    moment = datetime(2026, 1, 31, 12, 0, 0, 5, UTC)
    body = encoded(
        size=1,
        lines=[{"count": 4294967295, "inner": {"count": 1}}],
        tags={"a": {}},
        at=moment,
        price={"value": 0.0},
        free={"a": [1, None]},
    )
    newer = encoded(size=7)
    assert read(READER, body, b"", newer) == [
        (
            DEFAULTS
            | {
                "size": "LARGE",
                "lines": [{"count": 4294967295, "inner": '{"count": 1}'}],
                "tags": [("a", {"count": 0, "inner": None})],
                "at": moment,
                "price": 0.0,
                "free": '{"a": [1.0, null]}',
            },
            None,
        ),
        (DEFAULTS, None),
        (DEFAULTS | {"size": "7"}, None),
    ]


def test_damage() -> None:
    late = encoded(at={"seconds": 253_402_300_800})
    (cut, cut_reason), (_, late_reason), (fine, _) = read(READER, encoded(note="abc")[:-1], late, encoded())
    assert cut is None
    assert cut_reason is not None
    assert cut_reason.startswith("the body is not Protobuf of this message: ")
    assert late_reason == "the body is not Protobuf of this message: 253402300800 s is not a time that Spark has"
    assert fine == DEFAULTS


def test_descriptors_that_are_none() -> None:
    with pytest.raises(
        OptionError, match="the schema of bodies is not a descriptor set of Protobuf with all imports: "
    ):
        ProtobufBodies(b"syntax = proto3", "shop.Order")
    alone = FileDescriptorSet.FromString(descriptors())
    del alone.file[0]
    with pytest.raises(
        OptionError, match="the schema of bodies is not a descriptor set of Protobuf with all imports: "
    ):
        ProtobufBodies(alone.SerializeToString(), "shop.Order")
    with pytest.raises(OptionError, match=r"the schema of bodies has no message 'Order'; it has .*, shop\.Order$"):
        ProtobufBodies(descriptors(), "Order")
