"""What the broker keeps for named readers, with queries on real files."""

from __future__ import annotations

import gc
import json
import os
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from leveret.analytics.errors import AnalyticsError, OptionError
from leveret.analytics.options import parse_options
from leveret.analytics.streaming import kept_data as named_reader
from leveret.analytics.streaming.message_stream import MessageStream
from leveret.analytics.tables.table_reading import read_partition
from leveret.storage.engine import EngineOptions
from leveret.storage.event_format import EventKind
from leveret.storage.readers.reader_file import READERS
from tests.spark.directories import DirectoryBuilder

OPTIONS = EngineOptions(segment_bytes=1000, trash_bytes=1, ballast_bytes=0)


def stream(builder: DirectoryBuilder, **options: str) -> MessageStream:
    return MessageStream(parse_options({"path": builder.path, "reader": "lake", **options}))


def read(source: MessageStream, start: Any, end: Any) -> list[tuple[str, bytes]]:
    start, end = json.loads(json.dumps(start)), json.loads(json.dumps(end))
    return [
        (row["queue"], row["body"])
        for partition in source.partitions(start, end)
        for batch in read_partition(partition, "messages", ["queue", "body"], fail_fast=True)
        for row in batch.to_pylist()
    ]


def trash(builder: DirectoryBuilder) -> list[Path]:
    return [*Path(builder.path).glob("q/*/trash/*"), *Path(builder.path).glob("q/*/p*/trash/*")]


class Ledger:
    """Publishes to some queues of a directory, and removes messages in all ways; knows what was published."""

    def __init__(self, builder: DirectoryBuilder, seed: int) -> None:
        self.builder = builder
        self.rng = random.Random(seed)
        self.published: list[tuple[str, bytes]] = []
        for name, priority in (("a", 0), ("b", 0), ("b", 7)):
            self.builder.store(self._queue(name), priority)

    def work(self) -> None:
        """Publish and remove in a turn."""
        for queue in self.builder.engine.queues.values():
            for store in queue.stores.values():
                self._publish(str(queue.attributes["name"]), store)
                self._remove(store)
        self.builder.tick()

    def _queue(self, name: str) -> Any:
        queues = self.builder.engine.queues.values()
        found = next((queue for queue in queues if queue.attributes["name"] == name), None)
        return found or self.builder.queue(name)

    def _publish(self, name: str, store: Any) -> None:
        bodies = [b"%d" % self.rng.getrandbits(60) for _ in range(self.rng.randrange(12))]
        self.builder.append(store, bodies)
        self.published += [(name, body) for body in bodies]
        if self.rng.random() < 0.5:
            self.builder.engine.flush()

    def _remove(self, store: Any) -> None:
        chance = self.rng.random()
        entries = store.take(self.rng.randrange(1, 20), 10_000)[0]
        if chance < 0.6:
            store.settle(entries)
        elif chance < 0.8:
            store.settle(entries[::2], EventKind.REJECT)
            store.requeue(entries[1::2])
        else:
            store.requeue(entries)
            if chance < 0.9:
                store.purge()
            elif store.ready_count:
                store.drop(5, 1000)


@pytest.mark.parametrize("seed", range(2))
def test_a_named_reader_gets_every_message_once(tmp_path: Path, seed: int) -> None:
    builder = DirectoryBuilder(tmp_path, OPTIONS)
    ledger = Ledger(builder, seed)
    source = stream(builder)
    offset = source.first()
    builder.tick()
    received: list[tuple[str, bytes]] = []
    for _ in range(60):
        for _ in range(ledger.rng.randrange(4)):
            ledger.work()
        if ledger.rng.random() < 0.1:
            builder.reopen(in_order=ledger.rng.random() < 0.5)
            builder.tick()
        if ledger.rng.random() < 0.3:
            # The query was killed.
            source = stream(builder)
        end = source.advance(offset, ledger.rng.choice((0, 5, 30)))
        ledger.work()
        received += read(source, offset, end)
        offset = end
    while (end := source.advance(offset, 0)) != offset:
        received += read(source, offset, end)
        offset = end
    assert sorted(received) == sorted(ledger.published)
    assert "missed" not in offset
    # Nothing is kept for it any more.
    builder.tick()
    builder.wait(61)
    builder.tick()
    assert builder.engine.readers.counts.held_files == 0
    builder.close()


def test_a_reader_has_one_query_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(named_reader, "_PATIENCE", 0.0)
    builder = DirectoryBuilder(tmp_path, OPTIONS)
    builder.store(builder.queue("q"))
    first, second = stream(builder), stream(builder)
    offset = first.first()
    with pytest.raises(AnalyticsError, match="another query has the reader 'lake'"):
        second.first()
    with pytest.raises(AnalyticsError, match="another query has the reader 'lake'"):
        second.advance(offset, 0)
    # The broker takes what they lock for no reader.
    builder.tick()
    assert [each.file.name for each in builder.engine.readers.states] == ["lake"]
    del first
    second.advance(offset, 0)
    assert builder.engine.readers.drop("lake")
    assert not os.listdir(Path(builder.path) / READERS)
    builder.close()


def test_a_message_that_is_acknowledged_in_the_turn_in_which_it_came_is_written(tmp_path: Path) -> None:
    builder = DirectoryBuilder(tmp_path, OPTIONS)
    store = builder.store(builder.queue("q"))
    other = builder.store(builder.queue("other"))
    source = stream(builder, queue="q")
    offset = source.first()
    builder.tick()
    for each in (store, other):
        builder.append(each, [b"fast", b"faster"])
        builder.append(each, [b"transient"], delivery_mode=1)
        each.settle(each.take(3, 1000)[0])
    builder.tick()
    assert (store.log.disk_writes, other.log.disk_writes) == (2, 0)
    assert (store.log.live_size, store.persistent_count, store.ready_count) == (0, 0, 0)
    end = source.advance(offset, 0)
    assert read(source, offset, end) == [("q", b"fast"), ("q", b"faster")]
    # A queue that is made later has the reader, too, and none when it has gone.
    later = builder.store(builder.queue("q", vhost="later"))
    assert later.paging.keeps_dead
    (tmp_path / READERS / "lake").unlink()
    builder.tick()
    builder.append(later, [b"fast"])
    later.settle(later.take(3, 1000)[0])
    builder.tick()
    assert later.log.disk_writes == 0
    assert builder.engine.readers.counts.readers == 0
    builder.close()


def test_more_than_the_bound_is_not_kept_and_the_reader_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    builder = DirectoryBuilder(tmp_path, replace(OPTIONS, reader_max_bytes=5000))
    store = builder.store(builder.queue("q"))
    source = stream(builder)
    offset = source.first()
    builder.tick()
    builder.publish(store, [b"x" * 90] * 100)
    builder.settle(store, 100)
    for _ in range(3):
        builder.tick()
    counts = builder.engine.readers.counts
    assert 3000 < counts.held_bytes <= 5000
    assert counts.held_files == len(trash(builder)) < 6
    assert counts.unread_files > 10
    assert "segment files were removed that they had not read, to keep at most 5000 bytes" in caplog.text
    with pytest.raises(AnalyticsError, match=r"messages of queue 'q' .* storage\.reader_max_bytes for readers"):
        source.advance(offset, 0)
    # The failed query ends with its process.
    del source
    gc.collect()
    rest = stream(builder, failOnDataLoss="false")
    end = rest.advance(offset, 0)
    assert len(read(rest, offset, end)) + end["missed"]["/"]["q"] == 100
    builder.close()


def test_on_a_full_disk_nothing_is_kept(tmp_path: Path) -> None:
    builder = DirectoryBuilder(tmp_path, OPTIONS)
    store = builder.store(builder.queue("q"))
    stream(builder).first()
    builder.tick()
    builder.publish(store, [b"x" * 90] * 20)
    builder.settle(store, 20)
    builder.tick()
    held = builder.engine.readers.counts.held_files
    assert held > 2
    builder.engine.disk.limit = 1 << 62
    builder.engine.watch_disk()
    counts = builder.engine.readers.counts
    assert (counts.held_files, counts.unread_files) == (0, held)
    assert not trash(builder)
    # When there is room again, files are kept again; and not when the reader has gone.
    builder.engine.disk.limit = 0
    builder.engine.watch_disk()
    for expected in (True, False):
        builder.publish(store, [b"x" * 90] * 20)
        builder.settle(store, 20)
        for _ in range(3):
            builder.tick()
        assert bool(trash(builder)) is expected
        (tmp_path / READERS / "lake").unlink(missing_ok=True)
        builder.tick()
    builder.close()


def test_a_reader_that_is_not_seen_is_dropped_and_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    builder = DirectoryBuilder(tmp_path, OPTIONS)
    store = builder.store(builder.queue("q"))
    source = stream(builder)
    offset = source.first()
    builder.tick()
    builder.publish(store, [b"x" * 90] * 20)
    builder.settle(store, 20)
    builder.tick()
    assert trash(builder)
    # Later than what the system's clock says, by far.
    builder.wait(10 * 365 * 86_400)
    builder.tick()
    builder.tick()
    assert "reader lake was dropped: it has not been seen for 86400 s" in caplog.text
    assert builder.engine.readers.counts.dropped == 1
    assert not trash(builder)
    assert not (tmp_path / READERS / "lake").exists()
    with pytest.raises(AnalyticsError, match=r"the reader 'lake' was dropped"):
        source.advance(offset, 0)
    again = stream(builder, failOnDataLoss="false")
    assert again.advance(offset, 0)["missed"] == {"/": {"q": 20}}
    assert (tmp_path / READERS / "lake").exists()
    builder.close()


def test_a_damaged_file_is_an_error_that_keeps_what_was_kept(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    builder = DirectoryBuilder(tmp_path, OPTIONS)
    store = builder.store(builder.queue("q"))
    source = stream(builder)
    offset = source.first()
    builder.tick()
    builder.publish(store, [b"x" * 90] * 20)
    builder.settle(store, 20)
    file = tmp_path / READERS / "lake"
    whole = file.read_bytes()
    file.write_bytes(whole[:40])
    for _ in range(3):
        builder.tick()
    assert caplog.text.count("readers/lake is damaged: delete it") == 1
    for _ in range(2):
        with pytest.raises(AnalyticsError, match="readers/lake is damaged: delete it"):
            source.advance(offset, 0)
    file.write_bytes(whole)
    builder.tick()
    assert len(read(source, offset, source.advance(offset, 0))) == 20
    # At the start nothing is known of it but that it is damaged.
    file.write_bytes(b"\xff" * 100)
    builder.reopen()
    builder.tick()
    assert not trash(builder)
    builder.close()


def test_names_and_kinds_of_queries_that_can_have_a_reader(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="option 'reader' takes 1 to 64 letters, digits"):
        parse_options({"path": str(tmp_path), "reader": "../x"})
    with pytest.raises(OptionError, match="does not apply to table events"):
        parse_options({"path": str(tmp_path), "reader": "x", "table": "events"})
    with pytest.raises(OptionError, match="is for streaming queries"):
        _ = parse_options({"path": str(tmp_path), "reader": "x"}).batch_limits
