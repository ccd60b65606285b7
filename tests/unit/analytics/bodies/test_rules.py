"""Rules for bodies: found in a data directory, an archive or a file, and used by queries."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorSet

import leveret
from leveret.analytics.archive.archive_files import ArchiveFiles
from leveret.analytics.bodies.protobuf_bodies import ProtobufBodies
from leveret.analytics.bodies.schema_registry import registry_at
from leveret.analytics.errors import AnalyticsError, OptionError
from leveret.storage.disk.files import DiskFiles
from leveret.storage.readers.body_rules import read_rule, write_rules
from tests.spark.directories import DirectoryBuilder
from tests.support.archived import archive
from tests.support.schema_registry import ORDER as BODY
from tests.support.schema_registry import RegistryServer, framed, order_files, register_json, register_protobuf
from tests.unit.analytics.bodies.payloads import read
from tests.unit.analytics.bodies.test_avro_bodies import encoded

ORDER = {"queue": "orders.*", "format": "json", "schema": {"properties": {"id": {"type": "integer"}}}}
AVRO = {"type": "record", "name": "Mail", "fields": [{"name": "to", "type": "string"}]}
COLUMNS = ["queue", "value", "value_error"]


@pytest.fixture
def builder(tmp_path: Path) -> Iterator[DirectoryBuilder]:
    """Queues orders.eu, orders.us and mail in /, and orders.eu in other; the rule orders is of /."""
    builder = DirectoryBuilder(tmp_path / "data")
    for number, (vhost, name) in enumerate(
        (("/", "orders.eu"), ("/", "orders.us"), ("/", "mail"), ("other", "orders.eu"))
    ):
        builder.publish(builder.store(builder.queue(name, vhost)), [b'{"id": %d}' % number, b"{"])
    builder.tick()
    rules(builder, orders=ORDER, missing={**ORDER, "queue": "not-yet"})
    yield builder
    builder.close()


def rules(builder: DirectoryBuilder, vhost: str = "/", **values: Any) -> None:
    write_rules(DiskFiles(), builder.path, [read_rule(name, value, vhost) for name, value in values.items()])


def rows(*arguments: Any, **options: Any) -> list[tuple[Any, ...]]:
    table = leveret.scan(*arguments, columns=COLUMNS, **options).read_all()
    return sorted(zip(*(table[name].to_pylist() for name in COLUMNS), strict=True), key=str)


def test_the_queues_of_a_rule_are_read(builder: DirectoryBuilder) -> None:
    found = rows(builder.path, bodies="orders")
    reason = "the body is not JSON: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"
    assert found == [
        ("orders.eu", None, reason),
        ("orders.eu", {"id": 0}, None),
        ("orders.us", None, reason),
        ("orders.us", {"id": 1}, None),
    ]
    assert rows(builder.path, bodies="orders", queue="orders.us") == found[2:]
    assert [row[1] for row in rows(builder.path, bodies="orders", vhost="other")] == [None, {"id": 3}]
    # A queue that a rule names need not exist.
    assert rows(builder.path, bodies="missing") == []


def test_rules_that_are_not_there(builder: DirectoryBuilder) -> None:
    with pytest.raises(
        OptionError, match=rf"no rule 'mail' for bodies in {builder.path}; its rules are: missing, orders"
    ):
        rows(builder.path, bodies="mail")
    with pytest.raises(OptionError, match="one of json, avro, protobuf, or the name of a rule, not 'x-y'"):
        rows(builder.path, bodies="x-y")
    with pytest.raises(OptionError, match="'bodyschema' does not apply to bodies=orders"):
        rows(builder.path, bodies="orders", body_schema="id bigint")
    with pytest.raises(OptionError, match="'bodyrules' needs the name of one of the rules"):
        rows(builder.path, bodies="json", body_rules="rules.yaml")


def test_a_schema_that_is_wrong_names_its_rule(builder: DirectoryBuilder) -> None:
    rules(builder, orders={**ORDER, "schema": "id bigin"})
    with pytest.raises(OptionError, match="rule 'orders' for bodies: cannot read the schema 'id bigin' at 'bigin'"):
        rows(builder.path, bodies="orders")


def test_a_schema_that_lies_gives_reasons(builder: DirectoryBuilder) -> None:
    rules(builder, orders={**ORDER, "queue": "orders.eu", "schema": "id boolean"})
    assert rows(builder.path, bodies="orders")[1] == ("orders.eu", {"id": None}, "id: 0 is not a boolean")
    rules(builder, orders={"queue": "orders.eu", "format": "avro", "schema": AVRO})
    assert [(row[1], row[2] is None) for row in rows(builder.path, bodies="orders")] == [(None, False), (None, False)]


def test_a_file_of_rules(builder: DirectoryBuilder, tmp_path: Path) -> None:
    file = tmp_path / "rules.yaml"
    (tmp_path / "mail.avsc").write_text(json.dumps(AVRO))
    file.write_text(f"""
orders: {{queue: orders.us, format: json, schema: id int, vhost: /}}
mail: {{queue: mail, format: avro, schema_file: {tmp_path}/mail.avsc}}
""")
    found = rows(builder.path, bodies="orders", body_rules=str(file))
    assert [row[1] for row in found] == [None, {"id": 1}]
    assert len(rows(builder.path, bodies="mail", body_rules=str(file))) == 2
    for text, reason in (
        ("[1]", "has no rules: write them as a mapping, each by its name"),
        ("a: {b", "is not YAML"),
        ("a: {queue: q, format: xml}", "a: 'format' is one of json, avro, protobuf, not 'xml'"),
    ):
        file.write_text(text)
        with pytest.raises(OptionError, match=reason):
            rows(builder.path, bodies="a", body_rules=str(file))
    with pytest.raises(OptionError, match="bodyRules /nowhere cannot be read: No such file"):
        rows(builder.path, bodies="a", body_rules="/nowhere")


def test_an_archive_with_its_data_directory(builder: DirectoryBuilder, tmp_path: Path) -> None:
    place = str(tmp_path / "archive")
    archive(builder, ArchiveFiles(place))
    live = rows(builder.path, bodies="orders")
    assert rows([place, builder.path], bodies="orders") == live


def test_a_dataset(builder: DirectoryBuilder) -> None:
    with_rule = leveret.dataset(builder.path, bodies="orders")
    assert with_rule.schema.field("value").type == pa.struct([("id", pa.int64())])
    assert with_rule.to_table(columns=["value"]).num_rows == 4


def test_a_registry(builder: DirectoryBuilder) -> None:
    with RegistryServer() as server:
        number = server.register("mail-value", AVRO)
        bodies = [framed(number, encoded(AVRO, {"to": "you"})), framed(number + 1, b"")]
        builder.publish(builder.store(builder.queue("mail.eu")), bodies)
        builder.tick()
        rules(builder, mail={"queue": "mail.eu", "format": "avro", "registry": server.url, "subject": "mail-value"})
        assert rows(builder.path, bodies="mail") == [
            ("mail.eu", None, f"schema 2 is not in the registry {server.url}; register it there"),
            ("mail.eu", {"to": "you"}, None),
        ]
    rules(builder, mail={"queue": "mail.eu", "format": "avro", "registry": server.url, "subject": "other"})
    with pytest.raises(AnalyticsError, match=r"rule 'mail' for bodies: the registry http://.* cannot be reached"):
        rows(builder.path, bodies="mail")


def test_registries_of_json_and_protobuf(builder: DirectoryBuilder, tmp_path: Path) -> None:
    """With schemas that refer to others; and the same in a directory."""
    with RegistryServer() as server:
        of_json, json_bodies = register_json(server)
        of_protobuf, protobuf_bodies = register_protobuf(server)
        unknown = framed(77, b"\0")
        for rule, bodies in ((of_json, json_bodies), (of_protobuf, [*protobuf_bodies, unknown])):
            builder.publish(builder.store(builder.queue(rule["queue"])), bodies)
        builder.tick()
        rules(builder, json_orders=of_json, protobuf_orders=of_protobuf)
        no_number = "the body does not begin with the five bytes of a schema registry: 0, and its schema"
        assert rows(builder.path, bodies="json_orders") == [
            ("json.orders", None, no_number),
            ("json.orders", BODY, None),
        ]
        assert rows(builder.path, bodies="protobuf_orders") == [
            ("protobuf.orders", None, f"schema 77 is not in the registry {server.url}; register it there"),
            ("protobuf.orders", None, "the body is shop.Refund of schema 4, and the rule is of shop.Order"),
            ("protobuf.orders", BODY, None),
        ]
        # Without a message it is the first one.
        rules(builder, first={**of_protobuf, "message": ""})
        assert [row[1] for row in rows(builder.path, bodies="first")] == [None, None, {"id": 1}]
    directory = tmp_path / "schemas"
    directory.mkdir()
    (directory / "orders.json").write_text('{"properties": {"id": {"type": "integer"}}}')
    files = order_files()
    del files.file[1].dependency[1:], files.file[1].message_type[1].field[2:]
    for name in ("orders", "4"):
        (directory / f"{name}.desc").write_bytes(files.SerializeToString())
    rule = {"registry": str(directory), "subject": "orders"}
    file = tmp_path / "rules.json"
    file.write_text(json.dumps({"json_orders": {**of_json, **rule}, "protobuf_orders": {**of_protobuf, **rule}}))
    assert rows(builder.path, bodies="json_orders", body_rules=str(file))[1][1] == {"id": 1}
    found = rows(builder.path, bodies="protobuf_orders", body_rules=str(file))
    assert found[0][2] == f"schema 77 is not in the directory {directory}: there is no 77.desc"
    assert found[2][1] == {"id": 1, "line": {"n": 4}}


@pytest.mark.parametrize(
    ("compiled", "place", "reason"),
    [
        (b"", b"\0", "has no message at [0]"),
        (b"\xff", b"\0", "is not a descriptor set of Protobuf"),
        (None, b"\0", "is not in the registry"),
        (order_files().file[0].SerializeToString(), b"\2\4", "has no message at [2]"),
        (order_files().file[0].SerializeToString(), b"\1", "does not have the place of its message"),
        (order_files().file[0].SerializeToString(), b"\x02", "does not have the place of its message"),
        (order_files().file[0].SerializeToString(), b"\xff" * 9, "does not have the place of its message"),
        (order_files().file[0].SerializeToString(), b"\0\xff", "is not Protobuf of this message"),
    ],
)
def test_schemas_and_bodies_of_protobuf_that_lie(compiled: bytes | None, place: bytes, reason: str) -> None:
    with RegistryServer() as server:
        more = {} if compiled is None else {"compiled": compiled}
        number = server.register("orders", "", schemaType="PROTOBUF", **more)
        reader = ProtobufBodies(FileDescriptorSet(file=order_files().file[:1]).SerializeToString(), "", server.url)
        ((value, said),) = read(reader, framed(number, place))
        assert value is None
        assert reason in str(said)


def test_a_registry_that_does_not_compile(builder: DirectoryBuilder) -> None:
    with RegistryServer() as server:
        rule = {"queue": "q", "format": "protobuf", "registry": server.url, "subject": "orders"}
        rules(builder, orders=rule)
        text = 'syntax = "proto3";'
        for fault in (None, 501):
            number = server.register("orders", text, schemaType="PROTOBUF")
            server._answers[f"/schemas/ids/{number}?format=serialized"] = {"schemaType": "PROTOBUF", "schema": text}
            server.status = fault
            registry_at.cache_clear()
            with pytest.raises(
                AnalyticsError, match=r"subject orders is not compiled by the registry http.*=serialized"
            ):
                rows(builder.path, bodies="orders")
