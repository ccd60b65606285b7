"""Writes that fail half way and cannot be taken back at once, and files that cannot be removed."""

from __future__ import annotations

import errno
from typing import Final

from leveret.storage.engine import StorageEngine
from leveret.storage.message import Envelope, Message
from leveret.storage.stores.segment_store import SegmentStore
from tests.support.segment_stores import open_engine
from tests.support.simulated_files import SimulatedFiles

ALL: Final = 1 << 20
PERSISTENT: Final = Envelope(b"\x00\x01q", bytes(14), True)


class TornFiles(SimulatedFiles):
    """A disk of which some files refuse to be written to, cut and removed, after half of what was to be written."""

    def __init__(self) -> None:
        super().__init__()
        self.refused: tuple[str, ...] = ()

    def append(self, handle: int, octets: bytes) -> int:
        if self._refuses(self._handles[handle][0]):
            super().append(handle, octets[: len(octets) // 2])
            raise OSError(errno.EIO, "input/output error")
        return super().append(handle, octets)

    def truncate(self, handle: int, size: int) -> None:
        self._check(self._handles[handle][0])
        super().truncate(handle, size)

    def unlink(self, path: str) -> None:
        # Segments cannot be removed either, just as their manifest cannot be written.
        if self.refused and path.endswith(".seg"):
            raise OSError(errno.EIO, "input/output error", path)
        super().unlink(path)

    def _check(self, path: str) -> None:
        if self._refuses(path):
            raise OSError(errno.EIO, "input/output error", path)

    def _refuses(self, path: str) -> bool:
        return bool(self.refused) and path.endswith(self.refused)


def publish(store: SegmentStore, *bodies: bytes) -> None:
    for body in bodies:
        store.append([Message(PERSISTENT, body)], len(body))


def bodies_after_restart(files: SimulatedFiles, qid: int) -> list[bytes]:
    """What is found in a queue after the process was killed."""
    files.stop()
    engine = open_engine(files)
    store = engine.store(engine.queues[qid])
    found = [entry[1].body for entry in store.take(ALL, ALL)[0]]
    assert (store.lost_count, engine.report.lost_messages) == (0, 0)
    return found


def opened() -> tuple[TornFiles, StorageEngine, SegmentStore]:
    files = TornFiles()
    engine = open_engine(files)
    return files, engine, engine.store(engine.create_queue(True, {"name": "q"}))


def test_half_a_record_is_cut_off_before_the_next_one() -> None:
    files, engine, store = opened()
    publish(store, b"1", b"2")
    assert not engine.flush()
    files.refused = (".seg",)
    publish(store, b"3" * 50, b"4" * 50)
    assert engine.flush()
    assert engine.flush(), "as long as the disk is that way"
    files.refused = ()
    publish(store, b"5")
    assert not engine.flush()
    expected = [b"1", b"2", b"3" * 50, b"4" * 50, b"5"]
    store.set_lazy(True)
    assert [entry[1].body for entry in store.take(ALL, ALL)[0]] == expected
    assert bodies_after_restart(files, 1) == expected


def test_half_an_event_is_cut_off_before_the_next_one() -> None:
    files, engine, store = opened()
    publish(store, *[b"%d" % number for number in range(6)])
    entries = store.take(6, ALL)[0]
    store.settle(entries[:1])
    assert not engine.flush()
    files.refused = (".log",)
    store.settle(entries[2:3])
    engine.flush()
    files.refused = ()
    store.settle(entries[4:5])
    assert not engine.flush()
    assert bodies_after_restart(files, 1) == [b"1", b"3", b"5"]


def test_a_segment_that_could_not_be_begun_nor_removed_is_begun_anew() -> None:
    files, engine, store = opened()
    files.refused = ("MANIFEST",)
    publish(store, b"1")
    assert engine.flush()
    files.refused = ()
    publish(store, b"2")
    assert not engine.flush()
    assert [entry[1].body for entry in store.take(ALL, ALL)[0]] == [b"1", b"2"]
    assert bodies_after_restart(files, 1) == [b"1", b"2"]
