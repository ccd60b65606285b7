"""A restore of moments between two parts of a backup: what came and went between them is there."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

import leveret
from leveret.analytics.backup.capture import Capture
from leveret.analytics.backup.layout import object_path
from leveret.analytics.backup.repository import Repository
from leveret.analytics.backup.restore import Restored, restore, selects
from leveret.storage.directory.directory_format import lock_for_backup
from leveret.storage.disk.files import DiskFiles
from leveret.storage.readers.reader_file import BACKUP_READER, ReaderFile, read_reader, write_reader
from tests.conformance.topology import drain
from tests.integration.test_backup import bodies_in, now, publish, settle
from tests.integration.waiting import wait_until
from tests.support.leveret_process import LeveretProcess
from tests.support.management import Management
from tests.support.wire import Channel, Connection

#: More than a broker keeps of what it drops if nobody needs it.
MEGABYTES = 90


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[LeveretProcess]:
    settings: dict[str, object] = {"storage.segment_size": "4MiB", "log_level": "warning"}
    with LeveretProcess(tmp_path, settings=settings) as process:
        yield process


@pytest.fixture
def channel(broker: LeveretProcess) -> Iterator[Channel]:
    with Connection(broker.url) as connection:
        yield connection.channel()


@pytest.fixture
def capture(broker: LeveretProcess, tmp_path: Path) -> Iterator[Capture]:
    """One that the broker knows of."""
    with closing(Capture(str(broker.data_dir), Repository(str(tmp_path / "backup")))) as made:
        made.hold()
        wait_until(lambda: Management(broker.http_url).request("GET", "readers"), "the broker knows what to keep")
        yield made


def restored(tmp_path: Path, moment: int) -> Restored:
    return restore(Repository(str(tmp_path / "backup")), str(tmp_path / "r"), moment, selects(None, None))


def held(broker: LeveretProcess) -> int:
    (reader,) = Management(broker.http_url).request("GET", "readers")
    return int(reader["held_bytes"])


def test_what_is_dropped_between_two_parts_is_kept_until_it_is_sent(
    broker: LeveretProcess, channel: Channel, capture: Capture, tmp_path: Path
) -> None:
    channel.queue_declare("q", durable=True)
    stream = [("x-queue-type", "S", "stream"), ("x-max-length-bytes", "L", 1 << 20)]
    channel.queue_declare("s", durable=True, arguments=stream)
    settle(broker)
    capture.take()
    capture.hold()
    bodies = [b"%d" % each + bytes(1 << 20) for each in range(MEGABYTES)]
    publish(channel, "q", bodies)
    moment = settle(broker)
    channel.queue_purge("q")
    # More segments, so that those of before are not the last ones in the trash.
    publish(channel, "q", [b"later"])
    wait_until(lambda: held(broker) > (MEGABYTES - 64) << 20, "the broker keeps more than it would")
    settle(broker)
    capture.take(is_full=False)
    capture.hold()
    wait_until(lambda: held(broker) == 0, "nothing is kept that was sent")
    found = restored(tmp_path, moment)
    assert not found.missing
    assert not found.written.damaged
    assert bodies_in(tmp_path / "r", "q") == bodies


def test_what_was_compacted_while_the_segments_before_are_kept(
    broker: LeveretProcess, channel: Channel, capture: Capture, tmp_path: Path
) -> None:
    channel.queue_declare("q", durable=True)
    bodies = [b"%d" % each + bytes(100_000) for each in range(120)]
    publish(channel, "q", bodies)
    first = settle(broker)
    capture.take()
    taken = [channel.get("q") for _ in bodies]
    for number, each in enumerate(taken):
        assert each is not None
        if number % 6:
            channel.ack(each.delivery_tag)
    left = bodies[::6]
    # The second number of a name counts compactions.
    wait_until(lambda: bool([*broker.data_dir.glob("q/*/*-0001.seg")]), "segments are compacted")
    second = settle(broker)
    capture.take(is_full=False)
    # As before: hold() was not called, and so nothing is removed that was sent.
    publish(channel, "q", [b"last"])
    last = settle(broker)
    capture.take(is_full=False)
    assert [*broker.data_dir.glob("q/*/trash/*.seg")]
    for moment, expected in ((first, bodies), (second, left), (last, [*left, b"last"])):
        found = restored(tmp_path, moment)
        assert (found.missing, found.written.damaged) == (0, [])
        assert bodies_in(tmp_path / "r", "q") == expected
        shutil.rmtree(tmp_path / "r")


def test_a_queue_that_was_deleted_between_two_parts(
    broker: LeveretProcess, channel: Channel, capture: Capture, tmp_path: Path
) -> None:
    settle(broker)
    capture.take()
    capture.hold()
    # Declared, filled and deleted between two parts; the definitions are those of the moment, too.
    channel.queue_declare("gone", durable=True, arguments=[("x-max-priority", "I", 2)])
    for priority in (0, 2):
        publish(channel, "gone", [b"%d-%d" % (priority, each) for each in range(50)], priority=priority)
    settle(broker)
    capture.note_definitions()
    # A restored moment is at most that of the definitions.
    time.sleep(0.01)
    moment = settle(broker)
    channel.queue_delete("gone")
    settle(broker)
    trash = broker.data_dir / "trash"
    assert len(list(trash.iterdir())) == 1
    capture.take(is_full=False)
    capture.hold()
    wait_until(lambda: not list(trash.iterdir()), "nothing is kept that was sent")
    newest = settle(broker)
    capture.take(is_full=False)
    restored(tmp_path, moment)
    (tmp_path / "again").mkdir()
    (tmp_path / "r").rename(tmp_path / "again" / "data")
    with LeveretProcess(tmp_path / "again") as process, Connection(process.url) as connection:
        declared = connection.channel().queue_declare("gone", passive=True)
        assert declared.message_count == 100
    # It is in no later moment.
    assert not restored(tmp_path, newest - 1).written.damaged
    assert "gone" not in [each.read_text() for each in (tmp_path / "r").glob("q/*/QUEUE.json")]
    assert b"m" in bodies_in(tmp_path / "r", "marker")


def test_a_queue_that_was_deleted_and_declared_again_between_two_parts(
    broker: LeveretProcess, channel: Channel, capture: Capture, tmp_path: Path
) -> None:
    settle(broker)
    capture.take()
    capture.hold()
    moments, names = [], (b"first", b"second", b"third")
    for body in names:
        # Definitions are read before the queue is there, and after it has gone: never while it is.
        channel.queue_delete("q")
        capture.note_definitions()
        channel.queue_declare("q", durable=True)
        if body == b"second":
            capture.note_definitions()
        publish(channel, "q", [body] * 3)
        moments.append(settle(broker))
    capture.take(is_full=False)
    # There is no copy of the definitions with the first one.
    for at, body in zip(moments[1:], names[1:], strict=True):
        restored(tmp_path, at)
        directory = tmp_path / body.decode()
        directory.mkdir()
        (tmp_path / "r").rename(directory / "data")
        with LeveretProcess(directory) as process, Connection(process.url) as connection:
            assert drain(connection.channel(), "q") == [body] * 3


def test_policies_are_those_of_the_moment(
    broker: LeveretProcess, channel: Channel, capture: Capture, tmp_path: Path
) -> None:
    api = Management(broker.http_url)
    settle(broker)
    capture.take()
    moments = []
    for limit in (1, 2, 3):
        body = {"pattern": "^x", "definition": {"max-length": limit}, "apply-to": "queues"}
        api.request("PUT", "policies", "/", "limit", body=body)
        capture.note_definitions()
        moments.append(settle(broker))
        # Unchanged definitions are not read again.
        capture.note_definitions()
    settle(broker)
    capture.take(is_full=False)
    for at, moment in enumerate(moments):
        directory = tmp_path / f"again-{at}"
        directory.mkdir()
        restore(Repository(str(tmp_path / "backup")), str(directory / "data"), moment, selects(None, None))
        with LeveretProcess(directory) as process:
            (policy,) = Management(process.http_url).request("GET", "policies")
            assert policy["definition"] == {"max-length": at + 1}


def test_the_audit_log_is_that_of_the_moment(
    broker: LeveretProcess, channel: Channel, capture: Capture, tmp_path: Path
) -> None:
    def created(data: Path) -> list[str]:
        rows = leveret.scan(data, "audit", columns=["kind", "object"]).read_all().to_pylist()
        return [row["object"] for row in rows if row["kind"] == "queue.created"]

    settle(broker)
    capture.take()
    channel.queue_declare("a")
    moment = settle(broker)
    # Records have milliseconds.
    wait_until(lambda: now() > moment + 1000, "the next millisecond")
    channel.queue_declare("b")
    settle(broker)
    capture.take(is_full=False)
    assert not restored(tmp_path, moment).written.damaged
    assert created(tmp_path / "r") == ["marker", "a"]
    repository = Repository(str(tmp_path / "backup"))
    directory = tmp_path / "again"
    directory.mkdir()
    restore(repository, str(directory / "data"), None, selects(None, None))
    assert created(directory / "data") == ["marker", "a", "b"]
    with LeveretProcess(directory) as process:
        Management(process.http_url).request("PUT", "queues", "/", "c", body={})
        assert created(process.data_dir) == ["marker", "a", "b", "c"]
    # Damage costs the file, and nothing else.
    ((path, file),) = [
        each for each in repository.files_at(repository.backups()[-1]).items() if each[0].startswith("audit/")
    ]
    (tmp_path / "backup" / object_path(file.parts[0][0])).unlink()
    found = restore(repository, str(tmp_path / "damaged"), None, selects(None, None))
    assert [path in line for line in found.written.damaged] == [True]
    assert b"m" in bodies_in(tmp_path / "damaged", "marker")
    assert created(tmp_path / "damaged") == []


def test_what_is_kept_is_bounded_and_survives_a_restart(tmp_path: Path) -> None:
    settings: dict[str, object] = {
        "storage.segment_size": 65_536,
        "storage.reader_max_bytes": "1MiB",
        "storage.reader_max_age": "1h",
    }
    with LeveretProcess(tmp_path, settings=settings) as process:
        reader = ReaderFile(BACKUP_READER, None, None, 1, 4_102_444_800_000_000, since=1)
        write_reader(DiskFiles(), str(process.data_dir), reader)
        assert read_reader(DiskFiles(), str(process.data_dir), BACKUP_READER) == reader
        wait_until(lambda: Management(process.http_url).request("GET", "readers"), "the broker knows what to keep")
        trash = process.data_dir / "trash"
        for name, size in (("small", 1000), ("large", 40_000)):
            with Connection(process.url) as connection:
                channel = connection.channel()
                channel.queue_declare(name, durable=True)
                publish(channel, name, [bytes(size)] * 50)
                channel.queue_delete(name)
        # The second one is larger than what may be kept.
        wait_until(lambda: not list(trash.iterdir()), "it is dropped")
        with Connection(process.url) as connection:
            channel = connection.channel()
            channel.queue_declare("small", durable=True)
            publish(channel, "small", [bytes(1000)] * 50)
            channel.queue_delete("small")
        wait_until(lambda: len(list(trash.iterdir())) == 1, "it is kept")
        (kept,) = trash.iterdir()
        # As the program that takes backups does.
        lock = lock_for_backup(str(process.data_dir))
        assert lock is not None
        process.restart(crash=True)
        os.close(lock)
        assert list(trash.iterdir()) == [kept]
        (process.data_dir / "readers" / BACKUP_READER).unlink()
        wait_until(lambda: not list(trash.iterdir()), "nobody needs it")


def test_nothing_is_kept_for_backups_that_are_not_taken_any_more(tmp_path: Path) -> None:
    settings: dict[str, object] = {"backup.url": tmp_path / "backup", "backup.log_interval": "1s"}
    with LeveretProcess(tmp_path, settings=settings) as process:
        held = process.data_dir / "readers" / BACKUP_READER
        wait_until(held.exists, "what is kept for the next backup")
    # Somebody takes them beside the broker.
    capture = Capture(str(process.data_dir), Repository(str(tmp_path / "backup")))
    with closing(capture), LeveretProcess(tmp_path):
        assert held.exists()
    with LeveretProcess(tmp_path):
        assert not held.exists()
