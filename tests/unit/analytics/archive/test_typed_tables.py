"""Tables of an archive with what bodies say, one for each rule."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import leveret
from leveret.analytics.archive.archive_files import ArchiveFiles
from leveret.analytics.archive.file_reading import conformed
from leveret.analytics.archiver import Archiver
from leveret.analytics.bodies import schema_registry
from leveret.analytics.bodies.value_types import parse_type, type_ddl
from leveret.analytics.errors import OptionError
from leveret.analytics.iceberg.listing import tables_in
from leveret.analytics.iceberg.tables import IcebergTables
from leveret.analytics.tables.typed_tables import UnfitTypeError, merged_type
from leveret.storage.disk.files import DiskFiles
from leveret.storage.readers.body_rules import read_rule, write_rules
from tests.spark.directories import START, DirectoryBuilder
from tests.support.archived import archiver_options, data_files
from tests.support.iceberg import table_in, tables_of
from tests.support.schema_registry import RegistryServer, framed
from tests.unit.analytics.bodies.test_avro_bodies import encoded

HOUR = 3600
#: A minute before midnight.
EVENING = START // 86_400_000_000 * 86_400_000_000 + (24 * HOUR - 60) * 1_000_000
ORDER = {"queue": "orders.*", "format": "json", "schema": "id int"}
MAIL = {"type": "record", "name": "Mail", "fields": [{"name": "to", "type": "string"}]}
TABLE = "bodies_orders"


@pytest.fixture
def builder(tmp_path: Path) -> Iterator[DirectoryBuilder]:
    builder = DirectoryBuilder(tmp_path / "data", start=EVENING)
    yield builder
    builder.close()


@pytest.fixture
def files(tmp_path: Path) -> ArchiveFiles:
    return ArchiveFiles(str(tmp_path / "archive"))


def rules(builder: DirectoryBuilder, **values: Any) -> None:
    write_rules(DiskFiles(), builder.path, [read_rule(name, value, "/") for name, value in values.items()])


def publish(builder: DirectoryBuilder, queue: str, *bodies: bytes) -> None:
    known = {each.attributes["name"]: each for each in builder.engine.queues.values()}
    builder.publish(builder.store(known.get(queue) or builder.queue(queue)), bodies)
    builder.tick()


def copy(builder: DirectoryBuilder, files: ArchiveFiles, tables: IcebergTables | None = None) -> list[str]:
    """Copy what is there, and keep the archive up; what the archiver has said."""
    said: list[str] = []
    archiver = Archiver(archiver_options(builder), files, tables, said.append)
    try:
        while not archiver.copy().is_all:
            pass
        archiver.follow()
        archiver.keep_up()
        archiver.follow()
    finally:
        archiver.close()
    return said


def rows(files: ArchiveFiles, table: str = TABLE) -> list[tuple[Any, ...]]:
    """Queue, value, whether there is a reason, and body of the rows of all files."""
    tables = [pq.read_table(files.full_path(each.path), partitioning=None) for each in data_files(files, table)]
    return sorted(
        [
            (row["queue"], row["value"], row["value_error"] is not None, row["body"])
            for each in tables
            for row in each.to_pylist()
        ],
        key=str,
    )


def test_a_rule_has_a_table(builder: DirectoryBuilder, files: ArchiveFiles) -> None:
    publish(builder, "orders.eu", b'{"id": 1}')
    assert copy(builder, files) == []
    assert rows(files) == []
    rules(builder, orders=ORDER, none={**ORDER, "queue": "nobody"})
    publish(builder, "orders.eu", b'{"id": 2}', b"{", b'{"id": "x"}')
    publish(builder, "orders.us", b'{"id": 3}')
    publish(builder, "mail", b'{"id": 4}')
    copy(builder, files)
    assert rows(files) == [
        ("orders.eu", None, True, b"{"),
        ("orders.eu", {"id": 2}, False, None),
        ("orders.eu", {"id": None}, True, b'{"id": "x"}'),
        ("orders.us", {"id": 3}, False, None),
    ]
    assert data_files(files, "bodies_none") == []
    # The archive alone knows the rule, and has the older message, too.
    (url,) = [files.local_path]
    assert url is not None
    found = leveret.scan(url, columns=["value"], bodies="orders").read_all()["value"].to_pylist()
    assert sorted(found, key=str) == [None, {"id": 1}, {"id": 2}, {"id": 3}, {"id": None}]
    with pytest.raises(OptionError, match=f"there is no rule 'mail' for bodies in {url}; its rules are: none, orders"):
        leveret.scan(url, bodies="mail")


def test_a_further_field_is_a_further_column(builder: DirectoryBuilder, files: ArchiveFiles) -> None:
    rules(builder, orders=ORDER)
    publish(builder, "orders.eu", b'{"id": 1}')
    copy(builder, files)
    rules(builder, orders={**ORDER, "schema": "note string, id bigint"})
    publish(builder, "orders.eu", b'{"id": 5000000000, "note": "x"}')
    assert copy(builder, files) == []
    assert [row[1] for row in rows(files)] == [{"id": 1}, {"id": 5_000_000_000, "note": "x"}]
    # A field that the rule has no more stays in the table, and its type stays wide.
    rules(builder, orders={**ORDER, "schema": "note string"})
    publish(builder, "orders.eu", b'{"id": 7, "note": "y"}')
    builder.wait(2 * HOUR)
    builder.tick()
    assert copy(builder, files) == []
    # Files that are put together have the columns that the table has now.
    (whole,) = data_files(files, TABLE)
    kind = pa.struct([("id", pa.int64()), ("note", pa.string())])
    assert pq.read_schema(files.full_path(whole.path)).field("value").type == kind
    assert [row[1] for row in rows(files)] == [
        {"id": 1, "note": None},
        {"id": 5_000_000_000, "note": "x"},
        {"id": 7, "note": "y"},
    ]


def test_a_type_that_does_not_fit_is_told_and_the_archive_goes_on(
    builder: DirectoryBuilder, files: ArchiveFiles
) -> None:
    rules(builder, orders=ORDER)
    publish(builder, "orders.eu", b'{"id": 1}')
    copy(builder, files)
    rules(builder, orders={**ORDER, "schema": "id string"})
    publish(builder, "orders.eu", b'{"id": "2"}')
    assert copy(builder, files) == [
        "rule 'orders' for bodies: its type does not fit bodies_orders any more: value.id was int, and is string; give "
        "the rule its old type, or another name (the archive goes on without table bodies_orders)"
    ]
    assert len(rows(files)) == 1
    assert leveret.scan(files.local_path or "", columns=["seq"]).read_all().num_rows == 2
    rules(builder, orders=ORDER)
    publish(builder, "orders.eu", b'{"id": 3}')
    assert copy(builder, files) == []
    assert [row[1] for row in rows(files)] == [{"id": 1}, {"id": 3}]


def test_bodies_are_read_when_the_registry_is_back(
    builder: DirectoryBuilder, files: ArchiveFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema_registry, "_PAUSE", 0.0)
    with RegistryServer() as server:
        number = server.register("mail", MAIL)
        rules(builder, mail={"queue": "mail", "format": "avro", "registry": server.url, "subject": "mail"})
        server.status = 503
        (said,) = copy(builder, files)
        assert said.startswith(f"rule 'mail' for bodies: the registry {server.url} has answered with 503")
        server.status = None
        publish(builder, "mail", framed(number, encoded(MAIL, {"to": "a"})))
        assert copy(builder, files) == []
        server.status = 503
        body = framed(number, encoded(MAIL, {"to": "b"}))
        publish(builder, "mail", body, framed(99, b""))
        # No row is missing.
        assert copy(builder, files) == []
        away = [("mail", None, True, body), ("mail", None, True, framed(99, b"")), ("mail", {"to": "a"}, False, None)]
        assert rows(files, "bodies_mail") == away
        server.status = None
        builder.wait(2 * HOUR)
        builder.tick()
        assert copy(builder, files) == []
        assert rows(files, "bodies_mail") == [
            away[1],
            ("mail", {"to": "a"}, False, None),
            ("mail", {"to": "b"}, False, None),
        ]


def test_what_a_killed_archiver_has_left_is_deleted(builder: DirectoryBuilder, files: ArchiveFiles) -> None:
    rules(builder, orders=ORDER)
    publish(builder, "orders.eu", b'{"id": 1}')
    copy(builder, files)
    (known,) = data_files(files, TABLE)
    left = f"{known.path[: -len('.parquet') - 32]}{'0' * 32}.parquet"
    files.create(left, b"x")
    copy(builder, files)
    assert files.paths_below(TABLE) == [known.path]


@pytest.mark.parametrize("catalog", ["archive", "sql"])
def test_tables_of_iceberg(builder: DirectoryBuilder, files: ArchiveFiles, catalog: str, tmp_path: Path) -> None:
    catalog = "archive" if catalog == "archive" else f"sqlite:///{tmp_path}/catalog.db"
    tables = tables_of(files, catalog)
    rules(builder, orders={**ORDER, "schema": "id int, lines array<struct<price: double>>"})
    publish(builder, "orders.eu", b'{"id": 1, "lines": [{"price": 0.5}]}', b"{")
    publish(builder, "orders.us", b'{"id": 2, "lines": []}')
    copy(builder, files, tables)

    def values() -> list[Any]:
        found = table_in(catalog, files, TABLE).scan(selected_fields=("value", "value_error", "queue")).to_arrow()
        return sorted(found["value"].to_pylist(), key=lambda value: 0 if value is None else value["id"])

    assert values() == [None, {"id": 1, "lines": [{"price": 0.5}]}, {"id": 2, "lines": []}]
    found = (
        table_in(catalog, files, TABLE).scan(row_filter="queue = 'orders.us'", selected_fields=("value",)).to_arrow()
    )
    assert found["value"].to_pylist() == [{"id": 2, "lines": []}]
    # A further field, while the archiver runs and after another start.
    rules(builder, orders={**ORDER, "schema": "id bigint, note string, lines array<struct<price: double, count: int>>"})
    publish(builder, "orders.eu", b'{"id": 5000000000, "note": "x", "lines": [{"price": 1, "count": 2}]}')
    copy(builder, files, tables)
    wanted: list[Any] = [
        None,
        {"id": 1, "note": None, "lines": [{"price": 0.5, "count": None}]},
        {"id": 2, "note": None, "lines": []},
        {"id": 5_000_000_000, "note": "x", "lines": [{"price": 1.0, "count": 2}]},
    ]
    assert values() == wanted
    builder.wait(2 * HOUR)
    builder.tick()
    copy(builder, files, tables_of(files, catalog))
    assert values() == wanted
    assert table_in(catalog, files, "messages").scan(selected_fields=("seq",)).to_arrow().num_rows == 4
    if catalog == "archive":
        assert tables_in(files, "leveret")[TABLE]["queues"] == [("/", "orders.eu"), ("/", "orders.us")]


@pytest.mark.parametrize(
    ("known", "found", "merged"),
    [
        ("a int", "b string", "struct<`a`: int, `b`: string>"),
        ("a tinyint, b float", "a bigint, b double", "struct<`a`: bigint, `b`: double>"),
        ("a bigint", "a smallint", "struct<`a`: bigint>"),
        ("array<int>", "array<bigint>", "array<bigint>"),
        ("map<string, struct<a: int>>", "map<string, struct<b: int>>", "map<string, struct<`a`: int, `b`: int>>"),
        ("decimal(5, 2)", "decimal(9, 2)", "decimal(9, 2)"),
        ("decimal(9, 2)", "decimal(5, 2)", "decimal(9, 2)"),
    ],
)
def test_types_become_wider(known: str, found: str, merged: str) -> None:
    assert type_ddl(merged_type(parse_type(known), parse_type(found))) == merged


@pytest.mark.parametrize(
    ("known", "found", "reason"),
    [
        ("a int", "a string", "value.a was int, and is string"),
        ("a struct<b: array<int>>", "a struct<b: array<string>>", "value.a.b[] was int, and is string"),
        ("bigint", "double", "value was bigint, and is double"),
        ("decimal(5, 2)", "decimal(5, 3)", "value was decimal(5, 2), and is decimal(5, 3)"),
        ("a int", "array<int>", "value was struct<`a`: int>, and is array<int>"),
    ],
)
def test_types_that_do_not_fit(known: str, found: str, reason: str) -> None:
    with pytest.raises(UnfitTypeError) as refused:
        merged_type(parse_type(known), parse_type(found))
    assert str(refused.value) == reason


def test_values_fit_into_a_wider_type() -> None:
    kind = parse_type("a bigint, b array<struct<c: int, d: map<string, int>>>")
    values = pa.array(
        [{"a": 1, "b": [{"c": 2}, None]}, None, {"a": None, "b": None}], parse_type("a int, b array<struct<c: int>>")
    )
    assert conformed(values, kind).to_pylist() == [
        {"a": 1, "b": [{"c": 2, "d": None}, None]},
        None,
        {"a": None, "b": None},
    ]
