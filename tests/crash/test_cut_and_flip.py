"""A small data directory with every file cut at every length, and with every byte flipped, one at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pytest

from leveret.storage.directory.directory_format import DataDirectoryError
from leveret.storage.disk.files import UnreadableFileError
from leveret.storage.engine import StorageEngine
from leveret.storage.format import scan, unpack_segment_header
from leveret.storage.message import Envelope, Message, TimedMessage
from tests.support.segment_stores import Clock, open_engine
from tests.support.simulated_files import SimulatedFiles

ALL: Final = 1 << 20
ENVELOPE: Final = Envelope(b"\x00\x01q", bytes(14), True)
OTHER: Final = Envelope(b"\x01x\x01k", bytes(14), True, 3, 500, True, ("blind",))

#: Sequence number -> body, of all messages ever written; and of those that live.
Bodies = dict[int, bytes]


def fill(engine: StorageEngine) -> tuple[Bodies, Bodies]:
    """Two sealed segments and one that is written to, settled messages, a checkpoint, and events behind it."""
    store = engine.store(engine.create_queue(True, {"name": "q"}))
    written: Bodies = {}
    for number in range(17):
        body = b"%d:" % number + b"LVT1" * (number % 5)
        envelope = OTHER if number % 4 == 1 else ENVELOPE
        written[store.next_seq] = body
        store.append([TimedMessage(envelope, body, 7) if number % 3 == 0 else Message(envelope, body)], len(body))
        engine.flush()
        engine.commit()
    entries = store.take(6, ALL)[0]
    store.settle([entries[1], entries[2]])
    engine.flush()
    engine.checkpoint()
    store.settle([entries[4]])
    engine.flush()
    engine.commit(events=True)
    settled = {entries[at][0] for at in (1, 2, 4)}
    return written, {seq: body for seq, body in written.items() if seq not in settled}


def prepared(clean: bool) -> tuple[dict[str, bytes], Bodies, Bodies]:
    files = SimulatedFiles()
    engine = open_engine(files)
    written, living = fill(engine)
    if clean:
        assert engine.close()
    return files.snapshot(), written, living


RUNNING: Final = prepared(clean=False)
STOPPED: Final = prepared(clean=True)


def read(files: SimulatedFiles) -> tuple[StorageEngine, list[tuple[int, bytes]], int]:
    """Recover and take all messages; say also how many turned out to be lost only then."""
    engine = open_engine(files, Clock(1_800_000_000_000_000))
    found: list[tuple[int, bytes]] = []
    lost = 0
    for queue in engine.queues.values():
        store = engine.store(queue)
        count = store.ready_count
        entries = store.take(ALL, ALL)[0]
        found += [(entry[0], entry[1].body) for entry in entries]
        lost += store.lost_count
        assert len(entries) + store.lost_count + store.aside_count == count
        assert (store.ready_count, store.ready_bytes, store.taken_count) == (0, 0, len(entries))
        assert store.taken_bytes == sum(len(entry[1].body) for entry in entries)
    engine.flush()
    engine.commit(events=True)
    return engine, found, lost


def damaged(contents: dict[str, bytes], path: str) -> Iterator[tuple[str, dict[str, bytes]]]:
    octets = contents[path]
    for length in range(len(octets)):
        yield f"cut at {length}", contents | {path: octets[:length]}
    for at in range(len(octets)):
        flipped = bytearray(octets)
        flipped[at] ^= 1 << at % 8
        yield f"flipped at {at}", contents | {path: bytes(flipped)}


def check(contents: dict[str, bytes], path: str, how: str, written: Bodies, living: Bodies) -> None:
    files = SimulatedFiles()
    files.restore(contents)
    try:
        engine, found, lost = read(files)
    except DataDirectoryError:
        assert path.endswith("FORMAT"), "only a directory that cannot be understood is refused"
        return
    report = engine.report
    assert [seq for seq, _ in found] == sorted(seq for seq, _ in found), how
    assert all(written[seq] == body for seq, body in found), how
    seqs = {seq for seq, _ in found}
    missing, extra = living.keys() - seqs, seqs - living.keys()
    if missing and not (how.startswith("cut") and path == ACTIVE):
        # Where a file that is written to has been cut between two records, nothing tells.
        assert lost + report.lost_messages + report.cut_bytes + len(report.failures) > 0, how
    if len(missing) > report.lost_messages + lost:
        assert path == ACTIVE or report.failures, how
    if extra:
        assert "/events/" in path or "/ckpt/" in path, f"{how}: what was settled came back"
    if not path.endswith((".seg", "QUEUE.json")):
        assert not missing, f"{how}: no message was in this file"
    files.stop()
    _, again, lost_again = read(files)
    assert (again, lost_again) == (found, 0), f"{how}: the second recovery differs"


def test_the_directory_is_as_it_is_meant_to_be() -> None:
    contents, _, living = RUNNING
    assert sum(path.endswith(".seg") for path in contents) >= 3
    files = SimulatedFiles()
    files.restore(contents)
    engine, found, lost = read(files)
    assert (dict(found), lost) == (living, 0)
    assert (engine.report.messages, engine.report.lost_messages, engine.report.failures) == (len(living), 0, [])


ACTIVE: Final = max(path for path in RUNNING[0] if path.endswith(".seg"))


@pytest.mark.parametrize("path", [path for path, octets in RUNNING[0].items() if octets])
def test_a_running_broker_s_file(path: str) -> None:
    contents, written, living = RUNNING
    for how, broken in damaged(contents, path):
        check(broken, path, how, written, living)


@pytest.mark.parametrize("path", [path for path, octets in STOPPED[0].items() if octets])
def test_a_stopped_broker_s_file(path: str) -> None:
    contents, written, living = STOPPED
    for how, broken in damaged(contents, path):
        check(broken, path, how, written, living)


@pytest.mark.parametrize("path", [path for path in STOPPED[0] if path.endswith(".seg")])
def test_looking_past_a_settled_message(path: str) -> None:
    """A settled message is damaged: looking finds all others, whatever its record says of its length."""
    contents, _, living = STOPPED
    head = unpack_segment_header(contents[path])
    assert head is not None
    found = scan(contents[path], head.salt, head.first_seq)
    settled = [at for at, header in enumerate(found.headers) if header.seq not in living]
    for at in (offset for each in settled for offset in range(found.offsets[each], found.offsets[each] + 80)):
        flipped = bytearray(contents[path])
        flipped[at] ^= 1 << at % 8
        files = SimulatedFiles()
        files.restore(contents | {path: bytes(flipped)})
        engine = open_engine(files)
        (queue,) = engine.queues.values()
        store = engine.store(queue)
        seen = {each.seq: each.message.body for each in store.look(1, 100, ALL).seen}
        assert seen.items() >= living.items(), f"flipped at {at}"


@pytest.mark.parametrize("path", RUNNING[0])
def test_a_file_that_is_gone(path: str) -> None:
    contents, written, living = RUNNING
    check({name: octets for name, octets in contents.items() if name != path}, path, "cut at 0", written, living)


@pytest.mark.parametrize("path", [path for path in RUNNING[0] if not path.endswith(("FORMAT", "LOCK"))])
def test_a_file_that_cannot_be_read(path: str) -> None:
    """It may be readable at the next start, so nothing is lost if it is needed now."""
    contents, _, living = RUNNING
    files = SimulatedFiles()
    files.restore(contents)
    files.unreadable.add(path)
    refusal, seen = "", None
    try:
        seen = read(files)
    except UnreadableFileError as error:
        refusal = str(error)
    if seen is None:
        assert refusal.startswith(f"{path} cannot be read: ")
        files.stop()
        files.unreadable.clear()
        assert {seq for seq, _ in read(files)[1]} >= living.keys()
        return
    engine, found, lost = seen
    files.unreadable.clear()
    for _ in range(10):
        engine.housekeeping()
    stores = [engine.store(queue) for queue in engine.queues.values()]
    found += [(entry[0], entry[1].body) for store in stores for entry in store.take(ALL, ALL)[0]]
    missing = living.keys() - {seq for seq, _ in found}
    assert not missing or engine.report.failures or lost + engine.report.lost_messages + engine.report.cut_bytes > 0
