"""Rules for bodies: found in a data directory, an archive or a file, and used by queries."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import leveret
from leveret.analytics.archive.archive_files import ArchiveFiles
from leveret.analytics.errors import AnalyticsError, OptionError
from leveret.storage.disk.files import DiskFiles
from leveret.storage.readers.body_rules import read_rule, write_rules
from tests.spark.directories import DirectoryBuilder
from tests.support.archived import archive
from tests.support.schema_registry import RegistryServer, framed
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
