"""Power that goes, or files that are cut, at moments that chance meets seldom."""

from __future__ import annotations

import random
from typing import Final

import pytest

from leveret.policies.stream_arguments import Begin, StreamPlace
from leveret.storage.engine import EngineOptions, StorageEngine
from leveret.storage.event_format import DEAD_LETTERED, EventKind
from leveret.storage.format import SEGMENT_HEADER_BYTES
from leveret.storage.json_records import read_object, unpack_records
from leveret.storage.message import Envelope, Message
from tests.support.fake_consumer import FakeConsumer
from tests.support.segment_stores import Clock
from tests.support.simulated_files import ROOT, SimulatedFiles
from tests.support.streams import StreamBroker

PERSISTENT: Final = Envelope(b"\x00\x01q", bytes(14), True)


@pytest.mark.parametrize("what", ["delete", "checkpoint", "compact"])
def test_an_event_is_never_on_the_disk_ahead_of_the_dead_letter_it_speaks_of(what: str) -> None:
    for seed in range(12):
        files = SimulatedFiles()
        options = EngineOptions(segment_bytes=1500, disk_free_limit=0, ballast_bytes=0, redo_segments=0)
        # Nothing is called back: only what is done on the way counts.
        engine = StorageEngine(ROOT, files=files, clock=Clock(), options=options)
        queues = [engine.create_queue(True, {"name": name}) for name in ("source", "letters", "other")]
        source, letters, other = map(engine.store, queues)
        message = Message(PERSISTENT, b"x" * 100)
        source.append([message], 100)
        other.append([message], 100)
        engine.flush()
        engine.commit(events=True)
        entries = source.take(1, 1 << 20)[0]
        letters.append([message], 100)
        source.settle(entries, EventKind.REJECT, DEAD_LETTERED)
        engine.flush()
        if what == "delete":
            engine.delete_queue(queues[2])
        elif what == "checkpoint":
            engine.checkpoint()
        else:
            engine._sync(other)
        files.crash(random.Random(seed))
        again = StorageEngine(ROOT, files=files, clock=Clock(1_800_000_000_000_000), options=options)
        found = [again.store(each).ready_count for qid, each in again.queues.items() if qid in (1, 2)]
        assert sum(found) >= 1, f"with seed {seed}"


def test_the_audit_log_loses_only_its_end_what_was_written_since_the_last_second() -> None:
    for seed in range(12):
        files, clock = SimulatedFiles(), Clock()
        engine = StorageEngine(ROOT, files=files, clock=clock)
        log = engine.open_audit_log(keep_seconds=0, keep_bytes=0)
        log._file_bytes = 200
        written = 0
        for second in range(4):
            for _ in range(5):
                log.add({"n": written})
                log.write()
                written += 1
            clock.time += 1
            if second < 3:
                engine.housekeeping()
        files.crash(random.Random(seed))
        again = StorageEngine(ROOT, files=files, clock=Clock(1_800_000_000_000_000))
        log = again.open_audit_log(keep_seconds=0, keep_bytes=0)
        log.add({"n": written})
        log.close()
        names = files.list_directory(log.directory)
        octets = [files.read_all(f"{log.directory}/{name}") or b"" for name in names]
        found = [read_object(each)["n"] for part in octets for each in unpack_records(part, log.salt)]
        assert found == [*range(len(found) - 1), written], f"with seed {seed}"
        assert len(found) > written - 5, f"with seed {seed}"


def test_the_directory_of_a_new_broker_is_on_the_disk() -> None:
    for seed in range(8):
        files = SimulatedFiles()
        engine = StorageEngine(f"{ROOT}/below", files=files, clock=Clock())
        store = engine.store(engine.create_queue(True, {"name": "q"}))
        store.append([Message(PERSISTENT, b"x")], 1)
        engine.flush()
        engine.commit()
        files.crash(random.Random(seed))
        again = StorageEngine(f"{ROOT}/below", files=files, clock=Clock())
        assert again.report.messages == 1


def test_a_segment_without_a_message_is_begun_again_under_its_name() -> None:
    files = SimulatedFiles()
    StreamBroker(files).publish("a")
    contents = {path: octets for path, octets in files.snapshot().items() if "/redo/" not in path}
    (segment,) = [path for path in contents if path.endswith(".seg")]
    contents[segment] = contents[segment][:SEGMENT_HEADER_BYTES]
    files.restore(contents)
    before = StreamBroker(files, now=2000.0)
    before.publish("b")
    assert segment in files.snapshot()
    assert before.stores.close()
    after = StreamBroker(files, now=3000.0)
    assert after.engine.report.lost_messages == 0
    consumer = FakeConsumer(after.stream, "c", 1 << 40)
    after.stream.add_consumer(consumer, StreamPlace(Begin.FIRST))
    after.advance(0)
    assert consumer.received == ["b"]
