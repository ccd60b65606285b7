from __future__ import annotations

import errno
import json
import os
import shutil
import time
from pathlib import Path
from zlib import crc32

import fsspec
import pytest

from leveret.analytics.data_files import open_files
from leveret.analytics.errors import DamagedRecordError
from leveret.storage.directory.directory_format import DataDirectoryError
from leveret.storage.engine import EngineOptions
from leveret.storage.event_format import EventKind
from leveret.storage.snapshots.lease import LEASE_FILE, SNAPSHOTS, SnapshotLease, remove_dead_snapshots, take_lease
from leveret.storage.snapshots.snapshot import NoSuchQueueError, Request, SnapshotError, take_snapshot
from tests.spark.directories import DirectoryBuilder
from tests.support.plain_reader import Reader, open_reader

TINY = EngineOptions(segment_bytes=700, ballast_bytes=0)


def seqs(reader: Reader, name: str = "q") -> list[int]:
    (queue,) = (each for each in reader.queues if each.name == name)
    return [message.seq for message in reader.messages(queue)]


def read(path: Path, request: Request | None = None) -> list[int]:
    with open_reader(str(path), request) as reader:
        return seqs(reader)


@pytest.fixture
def builder(tmp_path: Path) -> DirectoryBuilder:
    return DirectoryBuilder(tmp_path / "data", TINY)


def test_what_came_after_the_tick_is_not_there(builder: DirectoryBuilder) -> None:
    store = builder.store(builder.queue("q"))
    builder.publish(store, [b"x"] * 5)
    builder.settle(store, 1)
    builder.tick()
    builder.publish(store, [b"x"] * 5)
    builder.settle(store, 2)
    assert read(Path(builder.path)) == [2, 3, 4, 5]
    builder.tick()
    assert read(Path(builder.path)) == [4, 5, 6, 7, 8, 9, 10]


def test_a_stop_in_order_is_a_tick(builder: DirectoryBuilder) -> None:
    store = builder.store(builder.queue("q"))
    builder.publish(store, [b"x"] * 5)
    builder.settle(store, 2)
    builder.close()
    assert read(Path(builder.path)) == [3, 4, 5]


def test_messages_as_they_were_published(builder: DirectoryBuilder) -> None:
    store = builder.store(builder.queue("q", "v"))
    builder.publish(store, [b"body"], "key", builder.clock.time + 10**9, priority=3)
    store.requeue(store.take(1, 100)[0])
    builder.engine.checkpoint()
    builder.tick()
    with open_reader(builder.path) as reader:
        (queue,) = reader.queues
        (message,) = reader.messages(queue)
    assert (queue.vhost, queue.name, queue.durable) == ("v", "q", True)
    assert (message.exchange, message.routing_key, message.body) == (b"amq.topic", b"key", b"body")
    assert (message.priority, message.redelivered, message.header[:2]) == (3, True, b"\x00\x3c")
    assert message.expires > message.arrived > 0


def test_events_up_to_the_tick(builder: DirectoryBuilder) -> None:
    store = builder.store(builder.queue("q"))
    builder.publish(store, [b"x"] * 5)
    builder.settle(store, 2, EventKind.EXPIRED)
    builder.tick()
    builder.settle(store, 1)
    with open_reader(builder.path, Request(messages=False, events=True)) as reader:
        events = [(event.kind, event.seq, event.length) for event in reader.events() if event.kind != EventKind.TICK]
    assert events == [(EventKind.EXPIRED, 1, 2)]


def test_links_keep_what_the_broker_gives_up(builder: DirectoryBuilder) -> None:
    queue = builder.queue("q")
    store = builder.store(queue)
    builder.publish(store, [b"x" * 100] * 20)
    builder.tick()
    with open_reader(builder.path) as reader:
        store.purge()
        builder.engine.delete_queue(queue)
        builder.tick()
        shutil.rmtree(f"{builder.path}/q")
        assert seqs(reader) == list(range(1, 21))
    assert os.listdir(f"{builder.path}/{SNAPSHOTS}") == []


def test_without_links_a_file_that_goes_is_told(builder: DirectoryBuilder) -> None:
    store = builder.store(builder.queue("q"))
    builder.publish(store, [b"x" * 100] * 20)
    builder.tick()
    with open_reader(builder.path, Request(link=False)) as reader:
        # In the trash it is found.
        builder.settle(store, 12)
        builder.tick()
        assert seqs(reader) == list(range(1, 21))
        shutil.rmtree(f"{builder.path}/q/00000001/trash")
        with pytest.raises(FileNotFoundError, match="take a new snapshot"):
            seqs(reader)


def test_where_links_are_refused_files_are_read_in_place(
    builder: DirectoryBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder.publish(builder.store(builder.queue("q")), [b"x"] * 5)
    builder.tick()

    def refuse(*_: object) -> None:
        raise OSError(errno.EPERM, "not yours")

    monkeypatch.setattr(os, "link", refuse)
    with open_reader(builder.path) as reader:
        assert reader.snapshot.lease is None
        assert seqs(reader) == [1, 2, 3, 4, 5]
    assert os.listdir(f"{builder.path}/{SNAPSHOTS}") == []


def test_what_compaction_has_rewritten_since_is_there_once(builder: DirectoryBuilder) -> None:
    store = builder.store(builder.queue("q"))
    builder.publish(store, [b"x" * 60] * 60)
    builder.tick()
    entries = store.take(60, 1 << 20)[0]
    store.requeue([entry for entry in entries if entry[0] % 5 == 0])
    store.settle([entry for entry in entries if entry[0] % 5])
    builder.engine.flush()
    builder.engine.commit(events=True)
    for _ in range(3):
        builder.engine.flush()
    # Nothing has been said of it yet: all live at the tick.
    assert read(Path(builder.path)) == list(range(1, 61))
    builder.tick()
    assert read(Path(builder.path)) == list(range(5, 61, 5))
    assert any(name[21:25] != "0000" for name in os.listdir(f"{builder.path}/q/00000001") if name.endswith(".seg"))


def test_a_queue_that_is_gone_is_not_there(builder: DirectoryBuilder) -> None:
    keep, gone = builder.queue("keep"), builder.queue("gone")
    for queue in (keep, gone):
        builder.publish(builder.store(queue), [b"x"] * 3)
    builder.tick()
    builder.store(gone).close()
    builder.engine.delete_queue(gone)
    builder.tick()
    with open_reader(builder.path) as reader:
        assert [queue.name for queue in reader.queues] == ["keep"]


def test_transient_messages_on_disk_are_kept_for_readers_too(builder: DirectoryBuilder) -> None:
    store = builder.store(builder.queue("q", durable=False))
    builder.publish(store, [b"x" * 200] * 20, delivery_mode=1)
    cut = builder.tick()
    (directory,) = Path(builder.path).glob("q/*")
    spilled = sorted(path.name for path in directory.glob("*.spl"))
    assert len(spilled) > 3
    builder.settle(store, 12)
    builder.engine.commit()
    trash = sorted(path.name for path in (directory / "trash").iterdir())
    assert trash
    assert trash == spilled[: len(trash)]
    # Nothing has been said of the next moment: the last one is read, with what has been thrown away since.
    assert read(Path(builder.path)) == list(range(1, 21))
    # Messages that were live then and are removed by now are reported as missing.
    shutil.rmtree(directory / "trash")
    with take_snapshot(builder.path, Request(as_of=cut)) as snapshot:
        assert snapshot.missing_segments == len(trash)
    builder.tick()
    assert read(Path(builder.path)) == list(range(13, 21))


def test_after_a_crash_and_recovery(builder: DirectoryBuilder, tmp_path: Path) -> None:
    store = builder.store(builder.queue("q"))
    builder.publish(store, [b"x" * 50] * 20)
    builder.settle(store, 7)
    builder.tick()
    builder.publish(store, [b"x" * 50] * 5)
    # As if the process had ended here.
    shutil.copytree(builder.path, tmp_path / "crashed")
    assert read(tmp_path / "crashed") == list(range(8, 21))
    again = DirectoryBuilder(tmp_path / "crashed", TINY, start=builder.clock.time)
    again.tick()
    assert read(tmp_path / "crashed") == list(range(8, 26))


def test_damage_is_counted(builder: DirectoryBuilder) -> None:
    builder.publish(builder.store(builder.queue("q")), [b"%03d" % number for number in range(20)])
    builder.tick()
    victim = min(Path(builder.path).glob("q/*/*.seg"))
    victim.write_bytes(victim.read_bytes().replace(b"003", b"0x3").replace(b"004", b"0x4"))
    with open_reader(builder.path) as reader:
        assert seqs(reader) == [1, 2, 3, *range(6, 21)]
        assert reader.damaged == 2
    with open_reader(builder.path, fail_fast=True) as reader, pytest.raises(DamagedRecordError):
        seqs(reader)


def test_what_cannot_be_read_is_said(builder: DirectoryBuilder, tmp_path: Path) -> None:
    builder.publish(builder.store(builder.queue("orders")), [b"x"])
    builder.tick()
    with pytest.raises(DataDirectoryError, match="is not a data directory of Leveret"):
        take_snapshot(str(tmp_path))
    with pytest.raises(NoSuchQueueError, match="has no queue 'x'; queues there: orders"):
        take_snapshot(builder.path, Request(wanted=lambda vhost, name: name == "x", described="'x'"))
    with pytest.raises(SnapshotError, match="has no records of 1970-01-01"):
        take_snapshot(builder.path, Request(as_of=1))
    (Path(builder.path) / "FORMAT").write_text("{}")
    with pytest.raises(DataDirectoryError, match="is damaged"):
        take_snapshot(builder.path)


def test_a_newer_format_is_read_where_it_says_that_it_can_be(builder: DirectoryBuilder) -> None:
    builder.publish(builder.store(builder.queue("q")), [b"x"])
    builder.tick()
    where = Path(builder.path) / "FORMAT"
    for oldest in (1, 9):
        fields = json.loads(where.read_text()) | {"format": 9, "min_reader": oldest}
        fields["crc"] = crc32(f"9 {oldest} {fields['store_id']} {fields['created']}".encode())
        where.write_text(json.dumps(fields))
        if oldest == 1:
            assert read(Path(builder.path)) == [1]
    with pytest.raises(DataDirectoryError, match="in format 9, and this version reads up to format 1; upgrade Leveret"):
        take_snapshot(builder.path)


@pytest.mark.parametrize("kind", ["file", "memory"])
def test_a_copy_elsewhere(builder: DirectoryBuilder, tmp_path: Path, kind: str) -> None:
    store = builder.store(builder.queue("q"))
    builder.publish(store, [b"x" * 50] * 20)
    builder.settle(store, 3)
    builder.tick()
    location = f"file://{tmp_path}/copy" if kind == "file" else f"memory://{tmp_path}/copy"
    fsspec.filesystem(kind).put(builder.path, location, recursive=True)
    files, path = open_files(location)
    assert files is not None
    with open_reader(path, files=files) as reader:
        assert reader.snapshot.lease is None
        assert seqs(reader) == list(range(4, 21))


def test_leases_without_heartbeat_are_given_up(tmp_path: Path) -> None:
    living, dead, patient = (take_lease(str(tmp_path), "test", timeout) for timeout in (600, 600, 9000))
    for lease in (dead, patient):
        os.utime(f"{lease.path}/{LEASE_FILE}", (1, os.stat(f"{lease.path}/{LEASE_FILE}").st_mtime - 700))
    assert json.loads((Path(living.path) / LEASE_FILE).read_text())["purpose"] == "test"
    half_made = tmp_path / SNAPSHOTS / "half"
    half_made.mkdir()
    assert remove_dead_snapshots(str(tmp_path)) == 1
    assert sorted(os.listdir(tmp_path / SNAPSHOTS)) == sorted(
        [os.path.basename(living.path), os.path.basename(patient.path), "half"]
    )
    assert not dead.renew()
    os.utime(half_made, (1, 1))
    assert remove_dead_snapshots(str(tmp_path)) == 1
    assert remove_dead_snapshots(str(tmp_path), include_active=True) == 2
    assert remove_dead_snapshots(str(tmp_path / "nowhere")) == 0


@pytest.mark.parametrize(
    "contents", [b"", b"[" * 100_000, b'{"timeout": 1e999}', b'{"timeout": 1' + b"0" * 400 + b"}", b"x" * 1_000_000]
)
def test_a_lease_that_says_nonsense_has_the_usual_timeout(tmp_path: Path, contents: bytes) -> None:
    lease = take_lease(str(tmp_path), "test", 9000)
    where = Path(lease.path) / LEASE_FILE
    where.write_bytes(contents)
    now = where.stat().st_mtime
    assert remove_dead_snapshots(str(tmp_path), now + 599) == 0
    assert remove_dead_snapshots(str(tmp_path), now + 601) == 1


def test_pipes_and_links_in_place_of_snapshots_and_leases(tmp_path: Path) -> None:
    os.utime(take_lease(str(tmp_path), "test").path)
    kept = tmp_path / "q"
    kept.mkdir()
    place = tmp_path / SNAPSHOTS
    os.mkfifo(place / "pipe")
    (place / "file").write_bytes(b"")
    (place / "link").symlink_to(kept)
    for name, make in (("a", os.mkfifo), ("b", os.mkdir), ("c", lambda path: os.symlink(kept, path))):
        (place / name).mkdir()
        make(place / name / LEASE_FILE)
    later = time.time() + 601
    assert remove_dead_snapshots(str(tmp_path), later) == 4
    assert remove_dead_snapshots(str(tmp_path), later, include_active=True) == 0
    assert sorted(os.listdir(place)) == ["file", "link", "pipe"]
    assert kept.is_dir()


def test_a_heartbeat_keeps_a_lease(tmp_path: Path) -> None:
    lease = take_lease(str(tmp_path), "test")
    os.utime(f"{lease.path}/{LEASE_FILE}", (1, 1))
    assert SnapshotLease(lease.path).renew()
    assert remove_dead_snapshots(str(tmp_path)) == 0
    lease.release()
    lease.release()


def test_nobody_else_may_look_into_snapshots(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        lease = take_lease(str(tmp_path), "test")
    finally:
        os.umask(before)
    for path in (tmp_path / SNAPSHOTS, Path(lease.path)):
        assert path.stat().st_mode & 0o777 == 0o700
    lease.release()
