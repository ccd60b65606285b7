"""The file QUEUE.json of a queue is damaged, or another queue's: all messages are still found."""

from __future__ import annotations

from typing import Final

import pytest

from leveret.storage.message import Envelope, Message
from tests.support.segment_stores import open_engine
from tests.support.simulated_files import ROOT, SimulatedFiles

ALL: Final = 1 << 20
FILES: Final = [f"{ROOT}/q/{qid:08x}/QUEUE.json" for qid in (1, 2)]


@pytest.fixture
def left() -> dict[str, bytes]:
    """What a broker leaves that had two queues, of which only priority 2 was ever used."""
    files = SimulatedFiles()
    engine = open_engine(files)
    for number in range(2):
        store = engine.store(engine.create_queue(True, {"name": f"q{number}"}), 2)
        body = b"message %d" % number
        store.append([Message(Envelope(b"\x00\x01q", bytes(14), True, 2), body)], len(body))
    assert not engine.flush()
    engine.commit()
    return files.snapshot()


@pytest.mark.parametrize("how", ["empty", "missing", "exchanged"])
def test_priorities_are_read_with_the_salt_of_their_segments(left: dict[str, bytes], how: str) -> None:
    contents = dict(left)
    for file, other in zip(FILES, reversed(FILES), strict=True):
        if how == "missing":
            del contents[file]
        else:
            contents[file] = left[other] if how == "exchanged" else b""
    files = SimulatedFiles()
    files.restore(contents)
    engine = open_engine(files)
    assert sum("QUEUE.json: is damaged or missing" in line for line in engine.report.lines()) == 2
    found = [engine.store(queue, 2).take(ALL, ALL)[0][0][1].body for queue in engine.queues.values()]
    assert found == [b"message 0", b"message 1"]
