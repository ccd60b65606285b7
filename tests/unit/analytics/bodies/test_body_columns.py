"""Bodies as columns of `leveret.scan`."""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest

import leveret
from leveret.analytics.bodies import json_bodies, payloads
from leveret.analytics.errors import AnalyticsError, OptionError
from tests.spark.directories import DirectoryBuilder
from tests.support.documentation import block
from tests.unit.analytics.bodies.test_protobuf_bodies import descriptors, encoded

VALUES = ["value", "value_error"]


@pytest.fixture
def builder(tmp_path: Path) -> Iterator[DirectoryBuilder]:
    """Queue a with JSON, one of them compressed and one damaged; queue b with other JSON."""
    builder = DirectoryBuilder(tmp_path / "data")
    store = builder.store(builder.queue("a"))
    builder.publish(store, [b'{"id": %d}' % number for number in range(100)])
    builder.publish(store, [gzip.compress(b'{"id": 100}')], content_encoding="gzip")
    builder.publish(store, [b'{"id": 10'])
    builder.publish(builder.store(builder.queue("b")), [b'{"name": "x", "id": 1.5}'])
    builder.tick()
    yield builder
    builder.close()


def rows(path: str, **options: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = leveret.scan(path, columns=VALUES, **options).read_all().to_pylist()
    return found


def test_json(builder: DirectoryBuilder) -> None:
    reader = leveret.scan(builder.path, bodies="json", queue="a")
    assert reader.schema.names[-3:] == ["body", *VALUES]
    assert reader.schema.field("value").type == pa.struct([("id", pa.int64())])
    table = reader.read_all()
    table.validate(full=True)
    assert table["value"].to_pylist() == [*({"id": number} for number in range(101)), None]
    assert table["value_error"].to_pylist()[:-1] == [None] * 101
    assert str(table["value_error"][-1]).startswith("the body is not JSON: ")
    assert table["body"][-1].as_py() == b'{"id": 10'
    # The type is that of all queues that are read, however many messages each has.
    both = leveret.scan(builder.path, bodies="json", columns=["value"], body_sample=10)
    assert both.schema.field("value").type == pa.struct([("id", pa.float64()), ("name", pa.string())])
    assert both.read_all().num_rows == 103


def test_the_documented_program(
    builder: DirectoryBuilder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    builder.publish(builder.store(builder.queue("orders")), [b'{"id": 7}'] * 5)
    builder.tick()
    monkeypatch.chdir(Path(builder.path).parent)
    Path("leveret-data").symlink_to("data")
    exec(block("python", 'bodies="json"'), {})
    kind, rows = capsys.readouterr().out.splitlines()
    assert kind == "struct<id: int64>"
    assert rows.count("{'id': 7}") == 3


def test_a_schema_that_is_given(builder: DirectoryBuilder) -> None:
    wanted = [{"value": {"name": "x", "id": None}, "value_error": "id: 1.5 is not a int"}]
    schema = pa.schema([("name", pa.string()), ("id", pa.int32())])
    for given in ("name string, id int", schema, pa.struct(list(schema))):
        assert rows(builder.path, bodies="json", body_schema=given, queue="b") == wanted


def test_bodies_are_read_only_if_they_are_asked_for(builder: DirectoryBuilder, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("bodies are read")

    monkeypatch.setattr(json_bodies, "load_json", refuse)
    monkeypatch.setattr(payloads, "value_columns", refuse)
    assert leveret.scan(builder.path, bodies="json", columns=["queue", "body"]).read_all().num_rows == 103
    with pytest.raises(pa.ArrowException, match="bodies are read"):
        leveret.scan(builder.path, bodies="json", body_schema="id int", columns=["value_error"]).read_all()


def test_nothing_to_infer_from(builder: DirectoryBuilder, caplog: pytest.LogCaptureFixture) -> None:
    assert leveret.scan(builder.path, "delayed", bodies="json").schema.field("value").type == pa.string()
    assert caplog.messages.pop().endswith("cannot be inferred, so it is text, as there are no messages")
    (row,) = rows(builder.path, bodies="json", queue="a", first_seq=102)
    assert row["value"] is None
    assert row["value_error"].startswith("the body is not JSON")
    assert "it is text, as none of 1 is JSON: the body is not JSON" in caplog.messages.pop()


def test_avro_and_protobuf(builder: DirectoryBuilder, tmp_path: Path) -> None:
    schema = tmp_path / "schema.avsc"
    schema.write_text(json.dumps({"type": "record", "name": "R", "fields": [{"name": "a", "type": "string"}]}))
    body = tmp_path / "body"
    with body.open("wb") as file:
        fastavro.schemaless_writer(file, fastavro.schema.load_schema(str(schema)), {"a": "é"})
    builder.publish(builder.store(builder.queue("avro")), [body.read_bytes(), b"\xff"])
    builder.publish(builder.store(builder.queue("protobuf")), [encoded(note="é"), b"\xff"])
    builder.tick()
    for given in (schema, schema.as_uri(), schema.read_text()):
        first, second = rows(builder.path, bodies="avro", body_schema=given, queue="avro")
        assert first == {"value": {"a": "é"}, "value_error": None}
        assert second["value"] is None
        assert second["value_error"].startswith("the body is not Avro of this schema: ")
    (tmp_path / "shop.desc").write_bytes(descriptors())
    named = {"bodies": "protobuf", "body_schema": tmp_path / "shop.desc", "body_message": "shop.Order"}
    first, second = rows(builder.path, queue="protobuf", **named)
    assert first["value"]["note"] == "é"
    assert (first["value_error"], second["value"]) == (None, None)
    assert second["value_error"].startswith("the body is not Protobuf of this message: ")


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"bodies": "xml"}, "there is no rule 'xml' for bodies in "),
        ({"body_schema": "id int"}, "option 'bodyschema' needs the option bodies: json or avro or protobuf"),
        ({"bodies": "json", "body_schema": "id"}, "cannot read the schema 'id' at its end"),
        ({"bodies": "json", "body_schema": pa.struct([("t", pa.time32("s"))])}, "Spark has no type for Arrow's time32"),
        ({"bodies": "json", "body_message": "M"}, "option 'bodyMessage' is for bodies=protobuf"),
        ({"bodies": "json", "body_sample": 0}, "option 'bodySample' must be an integer from 1 to 1000000, not '0'"),
        ({"bodies": "avro"}, "bodies=avro needs the option bodySchema"),
        ({"bodies": "avro", "body_schema": "/nowhere.avsc"}, "bodySchema /nowhere.avsc cannot be read: No such file"),
        ({"bodies": "avro", "body_schema": "file:///nowhere.avsc"}, "bodySchema file:///nowhere.avsc cannot be read: "),
        ({"bodies": "protobuf", "body_schema": "x"}, "bodies=protobuf needs the options bodySchema, the path"),
        ({}, "column 'value' needs bodies='json', 'avro', 'protobuf' or the name of a rule"),
        ({"table": "events", "bodies": "json"}, "option 'bodies' does not apply to table events, only to messages and"),
    ],
)
def test_options_that_are_refused(builder: DirectoryBuilder, options: dict[str, Any], reason: str) -> None:
    with pytest.raises(OptionError, match=reason):
        leveret.scan(builder.path, columns=VALUES, **options)


def test_a_library_that_is_missing(builder: DirectoryBuilder, monkeypatch: pytest.MonkeyPatch) -> None:
    schema = json.dumps({"type": "record", "name": "R", "fields": [{"name": "a", "type": "string"}]})
    monkeypatch.delitem(sys.modules, "leveret.analytics.bodies.avro_bodies", raising=False)
    monkeypatch.setitem(sys.modules, "fastavro", None)
    with pytest.raises(
        AnalyticsError, match=r"^bodies=avro needs the Python package fastavro: pip install 'leveret\[avro\]'"
    ):
        leveret.scan(builder.path, columns=VALUES, bodies="avro", body_schema=schema)
