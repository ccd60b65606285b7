from __future__ import annotations

from functools import partial

import pytest

from leveret.storage.commit import CommitGroup, RedoLog, Tail, read_redo
from tests.support.simulated_files import SimulatedFiles

STORE_ID = b"s" * 16
DIRECTORY = "/d/redo"


@pytest.fixture
def files() -> SimulatedFiles:
    made = SimulatedFiles()
    made.make_directory(DIRECTORY)
    return made


@pytest.fixture
def redo(files: SimulatedFiles) -> RedoLog:
    return RedoLog(files, DIRECTORY, STORE_ID, min_segments=1)


def written(files: SimulatedFiles, handle: int, qid: int, start: int, records: bytes) -> Tail:
    """Append to a segment, and return its tail."""
    files.append(handle, records)
    return Tail(qid, 0, f"/d/{qid}", start, start + len(records), [records])


def in_redo_log(files: SimulatedFiles) -> dict[int, list[bytes]]:
    """What the redo log has, by queue."""
    damaged: dict[str, str] = {}
    found = read_redo(files, DIRECTORY, STORE_ID, damaged)
    assert not damaged
    return {qid: parts for (qid, _), parts in found.items()}


def test_the_redo_log_takes_the_tails_of_merged_groups_in_order(files: SimulatedFiles, redo: RedoLog) -> None:
    one, other = files.open("/d/1", create=True), files.open("/d/2", create=True)
    first, second, third = CommitGroup(), CommitGroup(), CommitGroup()
    first.add_tail(one, written(files, one, 1, 64, b"aa"))
    second.add_tail(one, written(files, one, 1, 66, b"bbb"))
    second.add_tail(other, written(files, other, 2, 64, b"x"))
    third.add_tail(one, written(files, one, 1, 69, b"c"))
    first.merge(second)
    first.merge(third)
    first.sync(files, redo=redo)
    assert in_redo_log(files) == {1: [b"aabbbc"], 2: [b"x"]}
    assert files.syncs == 1


def test_a_segment_that_is_synced_anyway_is_not_copied(files: SimulatedFiles, redo: RedoLog) -> None:
    one, other = files.open("/d/1", create=True), files.open("/d/2", create=True)
    group, later = CommitGroup(), CommitGroup()
    group.add_tail(one, written(files, one, 1, 64, b"a"))
    group.add_tail(other, written(files, other, 2, 64, b"x"))
    later.data[one] = None
    group.merge(later)
    group.sync(files, redo=redo)
    assert in_redo_log(files) == {2: [b"x"]}
    assert files.syncs == 2


def test_segments_are_synced_where_there_is_no_redo_log(files: SimulatedFiles) -> None:
    group = CommitGroup()
    for qid in (1, 2, 3):
        handle = files.open(f"/d/{qid}", create=True)
        group.add_tail(handle, written(files, handle, qid, 64, b"a"))
    group.data[files.open("/d/4", create=True)] = None
    group.sync(files)
    assert files.syncs == 4


@pytest.mark.parametrize("lost", ["earlier", "later"])
def test_records_that_are_not_in_memory_are_read(files: SimulatedFiles, redo: RedoLog, lost: str) -> None:
    handle = files.open("/d/1", create=True)
    files.append(handle, b"h" * 64)
    tails = {"earlier": written(files, handle, 1, 64, b"aa"), "later": written(files, handle, 1, 66, b"b")}
    tails[lost].records = None
    group = CommitGroup()
    group.add_tail(handle, tails["earlier"])
    group.add_tail(handle, tails["later"])
    group.sync(files, redo=redo)
    assert in_redo_log(files) == {1: [b"aab"]}


def test_the_last_tail_of_a_segment_learns_that_it_is_released(files: SimulatedFiles, redo: RedoLog) -> None:
    handle = files.open("/d/1", create=True)
    group, later = CommitGroup(), CommitGroup()
    group.add_tail(handle, written(files, handle, 1, 64, b"a"))
    last = written(files, handle, 1, 65, b"b")
    later.add_tail(handle, last)
    group.merge(later)
    group.sync(files, redo=redo)
    assert group.is_awaited
    assert not last.is_released
    group.end()
    assert last.is_released
    assert last.records is None, "they take memory for nothing"


def test_what_will_not_be_synced_keeps_no_file_open(files: SimulatedFiles) -> None:
    handle = files.open("/d/1", create=True)
    group, tail = CommitGroup(), written(files, handle, 1, 64, b"a")
    group.add_tail(handle, tail)
    group.clear_syncs()
    assert tail.is_released
    assert not group
    group.sync(files)
    assert files.syncs == 0


def test_a_callback_that_fails_takes_no_other_with_it(files: SimulatedFiles, caplog: pytest.LogCaptureFixture) -> None:
    group, done = CommitGroup(), list[str]()
    for kind, calls in (("action", group.file_actions), ("callback", group.callbacks)):
        calls += [partial(divmod, 1, 0), partial(done.append, kind)]
    group.commit(files)
    assert done == ["action", "callback"]
    assert [record.exc_info is not None for record in caplog.records] == [True, True], "each failure is logged"
