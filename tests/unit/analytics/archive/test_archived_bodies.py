"""Bodies as columns of archives, alone and together with data directories."""

from __future__ import annotations

import gzip
import json
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from kombu.compression import compress

import leveret
from leveret.analytics.archive import data_writer, manifests
from leveret.analytics.archive.archive_files import ArchiveFiles
from leveret.analytics.archive.file_reading import read_file
from leveret.analytics.bodies import json_bodies, payloads
from leveret.analytics.errors import OptionError
from tests.spark.directories import DirectoryBuilder
from tests.support.archived import archive
from tests.unit.analytics.bodies.test_avro_bodies import encoded as avro
from tests.unit.analytics.bodies.test_protobuf_bodies import descriptors
from tests.unit.analytics.bodies.test_protobuf_bodies import encoded as protobuf

VALUES = ["value", "value_error"]


@pytest.fixture
def builder(tmp_path: Path) -> Iterator[DirectoryBuilder]:
    """Queue a with JSON, of which two are compressed and one is damaged."""
    builder = DirectoryBuilder(tmp_path / "data")
    store = builder.store(builder.queue("a"))
    builder.publish(store, [b'{"id": %d}' % number for number in range(97)])
    builder.publish(store, [gzip.compress(b'{"id": 97}')], content_encoding="gzip")
    compressed, name = compress(b'{"id": 98}', "bzip2")
    builder.publish(store, [compressed], headers={"compression": name, "n": 1})
    builder.publish(store, [b'{"id": 9'], headers={"n": 1})
    builder.tick()
    yield builder
    builder.close()


@pytest.fixture
def url(tmp_path: Path, builder: DirectoryBuilder) -> str:
    """An archive of it; all has left the queue since."""
    path = str(tmp_path / "archive")
    archive(builder, ArchiveFiles(path), batch=30)
    builder.settle(builder.store(next(iter(builder.engine.queues.values()))), 100)
    builder.tick()
    return path


def rows(*sources: str, columns: list[str] = VALUES, **options: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = leveret.scan(list(sources), columns=columns, **options).read_all().to_pylist()
    return found


def test_json(builder: DirectoryBuilder, url: str) -> None:
    reader = leveret.scan(url, bodies="json")
    assert reader.schema.names[0] == "broker"
    assert reader.schema.names[-3:] == ["body", *VALUES]
    assert reader.schema.field("value").type == pa.struct([("id", pa.int64())])
    table = reader.read_all()
    table.validate(full=True)
    assert table["value"].to_pylist() == [*({"id": number} for number in range(99)), None]
    assert table["value_error"].to_pylist()[:-1] == [None] * 99
    assert str(table["value_error"][-1]).startswith("the body is not JSON: ")
    # Columns are in their order, and those that are only needed for bodies are left out.
    chosen = ["value_error", "seq", "value", "broker"]
    (row,) = rows(url, columns=chosen, bodies="json", first_seq=97, last_seq=97)
    assert list(row) == chosen
    assert row == {"value_error": None, "seq": 97, "value": {"id": 96}, "broker": "one"}
    assert len(rows(url, bodies="json", limit=95)) == 95
    assert os.listdir(f"{builder.path}/snap") == []


def test_the_type_is_that_of_the_archive_and_of_what_has_come_since(builder: DirectoryBuilder, url: str) -> None:
    builder.publish(builder.store(builder.queue("b")), [b'{"name": "x", "id": 1.5}'])
    builder.tick()
    both = leveret.scan([url, builder.path], columns=["broker", *VALUES], bodies="json", body_sample=10)
    assert both.schema.field("value").type == pa.struct([("id", pa.float64()), ("name", pa.string())])
    found = both.read_all().to_pylist()
    assert (len(found), {row["broker"] for row in found}) == (101, {"one"})
    assert found[-1]["value"] == {"name": "x", "id": 1.5}
    # What is not selected is not looked at.
    assert leveret.scan([url, builder.path], queue="b", bodies="json").schema.field("value").type == pa.struct(
        [("name", pa.string()), ("id", pa.float64())]
    )
    assert os.listdir(f"{builder.path}/snap") == []


@pytest.mark.parametrize("groups", [1, 30])
def test_few_messages_of_many_are_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, groups: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Those of all queues, in one row group or in many."""
    monkeypatch.setattr(data_writer, "_GROUP_BYTES", 30_000 if groups == 1 else 1000)
    monkeypatch.setattr(manifests, "_TASK_BYTES", 1)
    builder, url = DirectoryBuilder(tmp_path / "data"), f"{tmp_path}/archive"
    for name in "abcdefgh":
        bodies = [json.dumps({name: number}).encode() for number in range(100)]
        builder.publish(builder.store(builder.queue(name)), bodies)
    builder.tick()
    builder.close()
    archive(builder, ArchiveFiles(url))
    read: list[bytes] = []
    load = json_bodies.load_json

    def count(octets: bytes, charset: str = "") -> Any:
        read.append(octets)
        return load(octets, charset)

    monkeypatch.setattr("leveret.analytics.tables.sampling.load_json", count)
    kind = leveret.scan(url, columns=["value"], bodies="json", body_sample=80).schema.field("value").type
    assert {field.name for field in kind} == set("abcdefgh")
    assert 70 <= len(read) <= 80
    with caplog.at_level(logging.WARNING):
        assert leveret.scan(url, queue="x", bodies="json").schema.field("value").type == pa.string()
    assert caplog.messages[-1].endswith("cannot be inferred, so it is text, as there are no messages")


def test_avro_and_protobuf(tmp_path: Path) -> None:
    builder, url = DirectoryBuilder(tmp_path / "data"), f"{tmp_path}/archive"
    builder.publish(builder.store(builder.queue("protobuf")), [protobuf(note="é"), b"\xff"])
    schema = json.dumps({"type": "record", "name": "R", "fields": [{"name": "a", "type": "string"}]})
    builder.publish(builder.store(builder.queue("avro")), [avro(json.loads(schema), {"a": "é"}), b"\xff"])
    builder.tick()
    archive(builder, ArchiveFiles(url))
    builder.close()
    first, second = rows(url, bodies="avro", body_schema=schema, queue="avro")
    assert first == {"value": {"a": "é"}, "value_error": None}
    assert second["value_error"].startswith("the body is not Avro of this schema: ")
    (tmp_path / "shop.desc").write_bytes(descriptors())
    named: dict[str, Any] = {"bodies": "protobuf", "body_schema": tmp_path / "shop.desc", "body_message": "shop.Order"}
    first, second = rows(url, queue="protobuf", **named)
    assert (first["value"]["note"], first["value_error"], second["value"]) == ("é", None, None)


def test_bodies_are_read_only_if_they_are_asked_for(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    columns: list[str] = []

    def note(*arguments: Any) -> Any:
        columns.extend(arguments[4])
        return read_file(*arguments)

    monkeypatch.setattr("leveret.analytics.archive.file_reading.read_file", note)
    monkeypatch.setattr(payloads, "columns_of", lambda *_: pytest.fail("bodies are read"))
    assert len(rows(url, columns=["queue", "seq"], bodies="json")) == 100
    assert set(columns) == {"queue", "seq"}


def test_what_is_refused(url: str) -> None:
    with pytest.raises(OptionError, match="option 'bodies' does not apply to table events"):
        leveret.scan(url, "events", bodies="json")
    with pytest.raises(OptionError, match="an archive has the tables messages, events, audit, but not delayed"):
        leveret.scan(url, "delayed", bodies="json")
    with pytest.raises(OptionError, match="column 'value' needs bodies"):
        leveret.scan(url, columns=["value"])
    with pytest.raises(OptionError, match="asOf and snapshot do not apply to archives"):
        leveret.scan(url, bodies="json", as_of=1)
