from __future__ import annotations

import re
from array import array
from pathlib import Path
from typing import Any

import pytest

from leveret.analytics.columns import TABLES
from leveret.analytics.errors import DamagedRecordError
from leveret.analytics.options import parse_options
from leveret.analytics.rows.record_rows import select_rows
from leveret.analytics.selection import RowLimits
from leveret.analytics.spark.readers import LeveretReader
from leveret.analytics.tables.table_query import make_query
from leveret.analytics.tables.table_reading import damage_of
from leveret.storage.engine import EngineOptions
from leveret.storage.format import RECORD_MAGIC
from leveret.storage.snapshots.lease import SnapshotLease
from leveret.storage.snapshots.snapshot import take_snapshot
from tests.spark.directories import DirectoryBuilder

BODIES = [b"%04d" % number for number in range(100)]


@pytest.fixture
def builder(tmp_path: Path) -> DirectoryBuilder:
    return DirectoryBuilder(tmp_path, EngineOptions(segment_bytes=100_000, ballast_bytes=0))


def damage(victim: Path, *pieces: bytes) -> None:
    """Change a byte at the beginning of each of these pieces of a file."""
    octets = bytearray(victim.read_bytes())
    for piece in pieces:
        octets[octets.index(piece)] ^= 1
    victim.write_bytes(octets)


def read_all(path: Path, table: str, **options: str) -> tuple[list[dict[str, Any]], int]:
    """The rows of a table, read twice, and how many records were skipped."""
    reader = LeveretReader(
        make_query(parse_options({"path": str(path), "table": table, **options}), None, list(TABLES[table]))
    )
    partitions: Any = reader.partitions()
    rows: list[dict[str, Any]] = []
    for _ in range(2):
        rows = [row for each in partitions for batch in reader.read(each) for row in batch.to_pylist()]
    lease = partitions[0].value.parts[0].place.lease
    reported = damage_of(lease)
    SnapshotLease(lease).release()
    return rows, reported


@pytest.mark.parametrize("table", ["messages", "segments", "queues"])
@pytest.mark.parametrize("sealed", [True, False])
def test_each_record_counts_once_in_whatever_queue(
    builder: DirectoryBuilder, tmp_path: Path, table: str, sealed: bool
) -> None:
    # The files of both queues have the same name.
    for name in ("a", "b"):
        builder.publish(builder.store(builder.queue(name)), BODIES)
    builder.settle(builder.engine.store(next(iter(builder.engine.queues.values())), 0), 12)
    builder.tick()
    if sealed:
        builder.close()
    for victim in tmp_path.glob("q/*/*.seg"):
        damage(victim, b"0005", b"0010", b"0011", b"0012", b"0050")
    rows, reported = read_all(tmp_path, table)
    # Of the first queue three of them were dead, 0005, 0010 and 0011. The other one's manifest is all that is read.
    seen = 0 if sealed and table != "messages" else 5
    assert reported == 2 + seen
    messages = len(rows) if table == "messages" else sum(row["messages"] for row in rows)
    assert messages == 88 - 2 + 100 - seen
    if table == "segments":
        assert [row["records"] for row in rows] == ([100, 100] if sealed else [95, 95])


def test_the_end_of_a_sealed_file(builder: DirectoryBuilder, tmp_path: Path) -> None:
    builder.publish(builder.store(builder.queue("q")), BODIES)
    builder.close()
    (victim,) = tmp_path.glob("q/*/*.seg")
    octets = victim.read_bytes()
    victim.write_bytes(octets[: octets.index(b"0090")])
    rows, reported = read_all(tmp_path, "messages")
    assert (len(rows), reported) == (90, 10)


def test_messages_of_two_streams(builder: DirectoryBuilder, tmp_path: Path) -> None:
    store = builder.store(builder.queue("q"))
    for at, body in enumerate(BODIES):
        builder.publish(store, [body], delivery_mode=1 + at % 2)
    builder.tick()
    for victim in tmp_path.glob("q/*/*-0000.*"):
        octets = victim.read_bytes()
        damage(victim, *[each for each in (b"0020", b"0021", b"0022", b"0023", b"0060") if each in octets])
    rows, reported = read_all(tmp_path, "messages")
    assert (len(rows), reported) == (95, 5)


def test_what_was_left_out_of_a_file_is_not_damaged(builder: DirectoryBuilder, tmp_path: Path) -> None:
    builder.publish(builder.store(builder.queue("q")), BODIES)
    builder.close()
    (victim,) = tmp_path.glob("q/*/*.seg")
    damage(victim, b"0010", b"0011", b"0012")
    with take_snapshot(str(tmp_path)) as snapshot:
        (view,) = snapshot.queues[0].stores[0].segments
        live = array("Q", (1, 12, 40, 101))
        found = select_rows(victim.read_bytes(), view, snapshot.cut.time, RowLimits(), live)
        assert found.damage.records == 1
        found = select_rows(victim.read_bytes(), view, snapshot.cut.time, RowLimits(first_seq=12), view.live)
        assert found.damage.records == 2


def test_failfast_says_where(builder: DirectoryBuilder, tmp_path: Path) -> None:
    store = builder.store(builder.queue("q"), 7)
    builder.publish(store, BODIES, priority=7)
    builder.settle(store, 10)
    builder.close()
    (victim,) = tmp_path.glob("q/*/p007/*.seg")
    damage(victim, b"0020", b"0021")
    with pytest.raises(DamagedRecordError) as raised:
        read_all(tmp_path, "messages", mode="FAILFAST")
    found = re.fullmatch(
        r"(.+): 2 records are damaged, the first one at byte (\d+); mode PERMISSIVE skips them", str(raised.value)
    )
    assert found is not None
    assert found[1] == str(victim)
    octets, at = victim.read_bytes(), int(found[2])
    assert octets.find(RECORD_MAGIC, at) == at
    assert octets.count(RECORD_MAGIC, 0, at) == 20


def test_events(builder: DirectoryBuilder, tmp_path: Path) -> None:
    store = builder.store(builder.queue("q"))
    builder.publish(store, BODIES)
    for _ in range(20):
        builder.settle(store, 2)
        builder.wait(1)
    builder.close()
    (victim,) = tmp_path.glob("events/*.log")
    octets = bytearray(victim.read_bytes())
    for at in (200, 205, 280):
        octets[at] ^= 1
    victim.write_bytes(octets)
    rows, reported = read_all(tmp_path, "events")
    assert (sum(row["messages"] for row in rows), reported) == (36, 2)
    with pytest.raises(DamagedRecordError, match=f"{victim}: 2 records are damaged, the first one at byte 200;"):
        read_all(tmp_path, "events", mode="FAILFAST")


def test_where_there_is_no_snapshot_the_session_is_told(builder: DirectoryBuilder, tmp_path: Path) -> None:
    builder.publish(builder.store(builder.queue("q")), BODIES)
    builder.close()
    (victim,) = tmp_path.glob("q/*/*.seg")
    damage(victim, b"0010", b"0011")
    (tmp_path / "session").mkdir()
    reader = LeveretReader(
        make_query(parse_options({"path": f"local://{tmp_path}"}), None, ["seq"]), str(tmp_path / "session")
    )
    assert sum(batch.num_rows for each in reader.partitions() for batch in reader.read(each)) == 98
    assert damage_of(str(tmp_path / "session")) == 2
