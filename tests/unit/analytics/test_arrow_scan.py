from __future__ import annotations

import gc
import importlib
import inspect
import os
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest import mock
from zlib import crc32

import pyarrow as pa
import pytest

import leveret
from leveret.analytics import read
from leveret.analytics.columns import TABLES
from leveret.analytics.data_files import LocalFiles
from leveret.analytics.errors import OptionError
from leveret.analytics.options import OPTIONS, ReadOptions, ScanOptions, parse_options
from leveret.analytics.tables import query_snapshots, table_reading
from leveret.storage.directory.directory_format import DataDirectoryError
from leveret.storage.engine import EngineOptions
from leveret.storage.event_format import EVENT_BYTES, EventRun
from leveret.storage.format import EXTENDED, RECORD_BYTES, SEGMENT_HEADER_BYTES, unpack_segment_header
from leveret.storage.snapshots.lease import LEASE_FILE
from leveret.storage.snapshots.snapshot import NoSuchQueueError
from tests.spark.directories import START, DirectoryBuilder
from tests.support.documentation import block


@pytest.fixture
def builder(tmp_path: Path) -> Iterator[DirectoryBuilder]:
    """Queue a in `/` with 60 messages, of which 10 have left; queue b in `other` with 40."""
    builder = DirectoryBuilder(tmp_path)
    for name, vhost, count in (("a", "/", 60), ("b", "other", 40)):
        store = builder.store(builder.queue(name, vhost))
        for number in range(count):
            builder.publish(store, [b'{"n": %d}' % number], headers={"n": number})
            builder.wait(1)
        if name == "a":
            builder.settle(store, 10)
    builder.tick()
    yield builder
    builder.close()


def snapshots(builder: DirectoryBuilder) -> list[str]:
    return os.listdir(f"{builder.path}/snap")


def test_every_table_with_its_columns(builder: DirectoryBuilder) -> None:
    rows = {}
    for table, columns in TABLES.items():
        found = leveret.scan(builder.path, table)
        assert found.schema.names == list(columns)
        whole = found.read_all()
        whole.validate(full=True)
        rows[table] = whole.num_rows
    assert (rows["messages"], rows["delayed"], rows["events"], rows["queues"]) == (90, 0, 1, 2)
    assert rows["segments"] > 2
    assert snapshots(builder) == []


def test_rows_are_chosen(builder: DirectoryBuilder) -> None:
    def seqs(**options: Any) -> list[int]:
        found: list[int] = leveret.scan(Path(builder.path), columns=["seq"], **options).read_all()["seq"].to_pylist()
        return found

    assert seqs(queue="b", first_seq=5, last_seq=7) == [5, 6, 7]
    assert seqs(queue="[a]", limit=3) == [11, 12, 13]
    assert seqs(vhost="other", limit=0) == []
    assert len(seqs(limit=1000)) == 90
    twentieth = datetime.fromtimestamp(START // 1_000_000 + 20, UTC)
    assert seqs(queue="a", since=twentieth, limit=2) == seqs(queue="a", since=START / 1e6 + 20, limit=2) == [21, 22]
    assert seqs(until=twentieth.isoformat()) == list(range(11, 21))
    queues = leveret.scan(builder.path, "queues", columns=["messages", "queue"]).read_all().to_pylist()
    assert queues == [{"messages": 50, "queue": "a"}, {"messages": 40, "queue": "b"}]


def test_queues_are_named_by_lists(builder: DirectoryBuilder) -> None:
    # As patterns, these texts match single characters of them.
    for name in ("c", "orders", "mail"):
        builder.publish(builder.store(builder.queue(name)), [b"x"])
    builder.tick()

    def queues(table: str = "messages", **options: Any) -> set[str]:
        return set(leveret.scan(builder.path, table, columns=["queue"], **options).read_all()["queue"].to_pylist())

    assert queues(queue=["orders", "mail"]) == queues(queue=("mail", "orders")) == {"orders", "mail"}
    assert queues(queue={"a"}) == queues(queue=["a"]) == {"a"}
    assert queues(queue=["[ab]", "m*"], vhost=["/", "none"]) == {"a", "mail"}
    assert queues("segments", queue=["a", "c"]) == queues("queues", queue=["a", "c"]) == {"a", "c"}
    assert queues("events", queue=["a", "b"]) == {"a"}
    # As Spark's options arrive.
    for text in ("['orders', 'mail']", '["orders", "mail"]', "('orders', 'mail')"):
        assert parse_options({"path": builder.path, "queue": text}).wants("/", "mail")
        assert not parse_options({"path": builder.path, "queue": text}).wants("/", "a")
    assert parse_options({"path": builder.path, "queue": "[12]"}).wants("/", "1")
    with pytest.raises(NoSuchQueueError, match=r"no queue 'gone' in virtual host '/'"):
        queues(queue=["a", "gone"], vhost="/")
    with pytest.raises(OptionError, match=r"empty list"):
        parse_options({"path": builder.path, "queue": "[]"})


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("queue", 5),
        ("queue", b"a"),
        ("queue", []),
        ("queue", ["a", 5]),
        ("queue", {"a": 1}),
        ("vhost", True),
        ("since", True),
        ("until", ["2026-01-31"]),
        ("limit", True),
        ("first_seq", b"5"),
        ("first_seq", 1.5),
        ("mode", 1),
        ("bodies", True),
        ("body_message", b"x"),
        ("body_schema", b"id int"),
        ("columns", "seq"),
        ("columns", b"seq"),
    ],
)
def test_a_value_of_a_wrong_type_is_refused(builder: DirectoryBuilder, option: str, value: Any) -> None:
    more = {"bodies": "json"} if option == "body_schema" else {}
    with pytest.raises(OptionError, match=option.replace("_", "_?")):
        leveret.scan(builder.path, **{option: value, **more})


def test_the_first_rows_are_the_same_with_a_limit(builder: DirectoryBuilder, caplog: pytest.LogCaptureFixture) -> None:
    for damaged in (False, True):
        if damaged:
            for victim in Path(builder.path).glob("q/*/*.seg"):
                victim.write_bytes(victim.read_bytes().replace(b'{"n": 21}', b'{"x": 21}'))
        rows = leveret.scan(builder.path).read_all()
        assert rows.num_rows == 90 - 2 * damaged
        for size in (100, 300, 1000, 1 << 20):
            with mock.patch.object(table_reading, "_FIRST_BYTES", size):
                for limit in (1, 3, 10, 25, 60, 89):
                    caplog.clear()
                    assert leveret.scan(builder.path, limit=limit).read_all() == rows.slice(0, limit)
                    # Damage behind the rows is told where it has been read.
                    assert damaged or "damaged" not in caplog.text
                    assert not damaged or limit < 25 or "damaged" in caplog.text


def test_the_first_rows_of_a_large_file_take_a_part_of_it(tmp_path: Path) -> None:
    builder = DirectoryBuilder(tmp_path, EngineOptions(ballast_bytes=0))
    builder.publish(builder.store(builder.queue("large")), [b"%04d" % number * 500 for number in range(1000)])
    builder.tick()
    (segment,) = tmp_path.glob("q/*/*.seg")
    assert segment.stat().st_size > 2_000_000
    read: list[int] = []

    def read_part(files: LocalFiles, path: str, start: int, size: int) -> bytes:
        read.append(size)
        return Path(path).read_bytes()[start : start + size]

    with mock.patch.object(LocalFiles, "read_part", read_part):
        rows = leveret.scan(tmp_path, columns=["seq", "body"], limit=7).read_all().to_pylist()
        assert rows == [{"seq": number + 1, "body": b"%04d" % number * 500} for number in range(7)]
        assert sum(read) <= 256 << 10
        # If that part is not enough, all is read.
        assert leveret.scan(tmp_path, columns=["seq"], limit=200).read_all()["seq"].to_pylist() == [*range(1, 201)]
        assert leveret.scan(tmp_path, columns=["seq"], first_seq=900, limit=2).read_all()["seq"].to_pylist() == [
            900,
            901,
        ]
    builder.close()


def test_the_snapshot_is_of_the_time_of_the_call(builder: DirectoryBuilder) -> None:
    reader = leveret.scan(builder.path, columns=["seq"])
    store = builder.store(builder.queue("c"))
    builder.publish(store, [b"x"])
    builder.tick()
    assert reader.read_all().num_rows == 90
    assert leveret.scan(builder.path, columns=["seq"]).read_all().num_rows == 91


@pytest.mark.parametrize("how", ["close", "with", "free", "never started", "limit"])
def test_the_snapshot_is_removed(builder: DirectoryBuilder, how: str) -> None:
    reader = leveret.scan(builder.path, limit=1 if how == "limit" else None)
    assert len(snapshots(builder)) == 1
    if how == "never started":
        del reader
    else:
        reader.read_next_batch()
        if how == "limit":
            with pytest.raises(StopIteration):
                reader.read_next_batch()
        elif how == "close":
            reader.close()
        elif how == "with":
            with reader:
                reader.read_next_batch()
        else:
            del reader
    gc.collect()
    assert snapshots(builder) == []


def test_a_slow_reader_keeps_its_snapshot(builder: DirectoryBuilder) -> None:
    reader = leveret.scan(builder.path)
    (name,) = snapshots(builder)
    lease = f"{builder.path}/snap/{name}/{LEASE_FILE}"
    os.utime(lease, (1, 1))
    query_snapshots.renew_held()
    assert os.stat(lease).st_mtime > time.time() - 60
    reader.close()
    query_snapshots.renew_held()
    assert snapshots(builder) == []


def test_damage_is_skipped_or_an_error(builder: DirectoryBuilder, caplog: pytest.LogCaptureFixture) -> None:
    (victim,) = [each for each in Path(builder.path).glob("q/*/*.seg") if b'{"n": 33}' in each.read_bytes()][:1]
    victim.write_bytes(victim.read_bytes().replace(b'{"n": 33}', b'{"x": 33}'))
    assert leveret.scan(builder.path, queue="a").read_all().num_rows == 49
    assert f"{victim}: 1 records are damaged and were skipped" in caplog.text
    with pytest.raises(pa.ArrowInvalid, match=f"{victim}: 1 records are damaged, the first one at byte"):
        leveret.scan(builder.path, queue="a", mode="failfast").read_all()
    assert snapshots(builder) == []


def test_what_newer_versions_add_is_passed_over(tmp_path: Path) -> None:
    """Flags of records, tags of extensions, and kinds of events; a message and an event keep what is known of them."""
    builder = DirectoryBuilder(tmp_path)
    builder.publish(builder.store(builder.queue("q")), [b"body" + bytes(12)])
    builder.tick()
    (segment,) = tmp_path.glob("q/*/*.seg")
    octets = bytearray(segment.read_bytes())
    at, end = SEGMENT_HEADER_BYTES, octets.index(b"body" + bytes(12)) + 4
    octets[end : end + 12] = struct.pack("<IBI3s", 8, 99, 3, b"new")
    octets[at + 12] -= 12
    octets[at + 44] |= 16 | 32 | 128 | EXTENDED
    header = unpack_segment_header(bytes(octets))
    assert header is not None
    crc = crc32(octets[at + 8 : at + RECORD_BYTES], crc32(octets[at + RECORD_BYTES : end + 12])) ^ header.salt
    octets[at + 4 : at + 8] = struct.pack("<I", crc)
    segment.write_bytes(octets)
    (log,) = tmp_path.glob("events/*.log")
    records = log.read_bytes()
    salt = crc32(records[16:32])
    events = [EventRun(7, START, 1, 3, 4, kind, 0, 0x8E, 5, 4, 12).pack(salt) for kind in (29, 99)]
    log.write_bytes(records[:-EVENT_BYTES] + b"".join(events) + records[-EVENT_BYTES:])
    (row,) = leveret.scan(builder.path, columns=["seq", "body", "routing_key"]).read_all().to_pylist()
    assert row == {"seq": 1, "body": b"body", "routing_key": "k"}
    found = leveret.scan(builder.path, "events", columns=["kind", "seq", "messages", "dead_lettered"]).read_all()
    assert found.to_pylist() == [{"kind": "kind_29", "seq": 7, "messages": 3, "dead_lettered": False}]


@pytest.mark.parametrize(
    ("options", "kind", "text"),
    [
        (
            {"path": "/nowhere"},
            DataDirectoryError,
            "/nowhere is not a data directory of Leveret: it has no file FORMAT",
        ),
        ({"path": ""}, OptionError, "name the data directory"),
        ({"table": "rows"}, OptionError, "unknown table 'rows'; the tables are messages, delayed, events"),
        (
            {"columns": ["seq", "size"]},
            OptionError,
            "table messages has no column 'size'; its columns are vhost, queue",
        ),
        ({"columns": "seq"}, OptionError, r"columns is a list of names: columns=\['seq'\]"),
        ({"columns": []}, OptionError, "name at least one column of table messages"),
        ({"queue": "c"}, NoSuchQueueError, "has no queue 'c'; queues there: a, b"),
        ({"table": "queues", "since": 5}, OptionError, "'since' does not apply to table queues"),
        ({"since": "noon"}, OptionError, "'noon' is not a time"),
        ({"limit": -1}, OptionError, "option 'limit' must be an integer of at least 0, not '-1'"),
        ({"mode": "lenient"}, OptionError, "option 'mode' must be one of permissive, failfast"),
    ],
)
def test_what_cannot_be_read(
    builder: DirectoryBuilder, options: dict[str, Any], kind: type[Exception], text: str
) -> None:
    with pytest.raises(kind, match=text):
        leveret.scan(**{"path": builder.path, **options})
    assert not os.path.exists(f"{builder.path}/snap") or snapshots(builder) == []


def test_a_copy_elsewhere(builder: DirectoryBuilder) -> None:
    assert leveret.scan(f"local://{builder.path}", columns=["seq"]).read_all().num_rows == 90


def test_libraries_of_analysts_read_it(builder: DirectoryBuilder) -> None:
    # Environments without the newest test dependencies can still check the types of this file.
    duckdb, polars = importlib.import_module("duckdb"), importlib.import_module("polars")
    messages = leveret.scan(builder.path, columns=["queue", "body_bytes"])
    rows = duckdb.sql("select queue, count(*), sum(body_bytes) from messages group by queue order by queue").fetchall()
    assert rows == [("a", 50, 450), ("b", 40, 350)]
    assert messages.schema.names == ["queue", "body_bytes"]
    bodies = leveret.scan(builder.path, columns=["body"])
    sums = duckdb.sql("select sum((decode(body)::json ->> 'n')::int) from bodies").fetchall()
    assert (sums, bodies.schema.names) == ([(sum(range(10, 60)) + sum(range(40)),)], ["body"])
    frame = polars.from_arrow(leveret.scan(builder.path, columns=["queue", "seq"]).read_all())
    assert frame.group_by("queue").len().sort("queue").rows() == [("a", 50), ("b", 40)]
    assert snapshots(builder) == []


def test_the_documented_program(builder: DirectoryBuilder, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    builder.publish(builder.store(builder.queue("orders")), [b"x"] * 120)
    builder.tick()
    source = block("python", "polars.from_arrow")
    assert source.count('"leveret-data"') == 3
    found: dict[str, Any] = {}
    exec(source.replace('"leveret-data"', repr(str(tmp_path))), found)
    assert "orders" in capfd.readouterr().out
    assert (found["oldest"]["queue"].to_pylist(), found["lost"].height) == (["orders"] * 100, 0)


def test_it_takes_no_spark_and_the_first_row_only_what_it_needs(builder: DirectoryBuilder) -> None:
    program = (
        "import sys, leveret\n"
        "leveret.scan(sys.argv[1], columns=['queue', 'body'], limit=1).read_all()\n"
        # They take longer to load than the first row to read.
        "print(*sorted({'fsspec', 'pyarrow.compute', 'pyarrow.fs'} & sys.modules.keys()))\n"
        "for table in ('messages', 'delayed', 'events', 'segments', 'queues'):\n"
        "    leveret.scan(sys.argv[1], table).read_all()\n"
        "print(*sorted({'pyspark', 'py4j', 'plotly', 'aiohttp', 'pamqp', 'leveret.broker'} & sys.modules.keys()))"
    )
    command = [sys.executable, "-c", program, builder.path]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert (done.stdout, done.stderr) == ("\n\n", "")


def test_a_process_that_ends_early_leaves_nothing(builder: DirectoryBuilder) -> None:
    program = "import sys, leveret; r = leveret.scan(sys.argv[1]); r.read_next_batch()"
    subprocess.run([sys.executable, "-c", program, builder.path], timeout=120, check=True)
    assert snapshots(builder) == []


def test_events_have_the_names_of_deleted_queues(builder: DirectoryBuilder) -> None:
    queue = builder.queue("gone", "v")
    builder.publish(builder.store(queue), [b"x"] * 10)
    builder.settle(builder.store(queue), 4)
    builder.engine.delete_queue(queue)
    builder.tick()
    columns = ["vhost", "queue", "kind", "messages"]
    rows = leveret.scan(builder.path, "events", columns=columns, queue="gone").read_all().to_pylist()
    assert [tuple(row.values()) for row in rows] == [("v", "gone", "ack", 4), ("v", "gone", "queue_deleted", 6)]
    with pytest.raises(NoSuchQueueError, match="has no queue 'gone'"):
        leveret.scan(builder.path, queue="gone")


def test_segments_and_queues_agree(builder: DirectoryBuilder) -> None:
    segments = leveret.scan(builder.path, "segments", queue="a").read_all()
    (row,) = leveret.scan(builder.path, "queues", queue="a").read_all().to_pylist()
    assert (row["messages"], row["segments"], row["durable"]) == (50, segments.num_rows, True)
    assert sum(segments["messages"].to_pylist()) == 50
    assert row["file_bytes"] == sum(segments["file_bytes"].to_pylist())


def test_options_are_arguments_that_are_documented(builder: DirectoryBuilder) -> None:
    for function, kind in ((leveret.scan, ScanOptions), (leveret.dataset, ScanOptions), (read, ReadOptions)):
        known = inspect.signature(function).parameters
        for name in kind.__annotations__:
            assert known[name].default is None
            assert f"        {name}: {OPTIONS[name].meaning[:40]}" in str(function.__doc__)
        assert all(each.kind is not inspect.Parameter.VAR_KEYWORD for each in known.values())
    with pytest.raises(TypeError, match=r"scan\(\) got an unexpected keyword argument 'que'"):
        leveret.scan(builder.path, que="q")  # type: ignore[call-arg]
