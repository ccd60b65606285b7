"""Recovery says what was wrong with which file: one line for each that is damaged, and none for any other."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from leveret.storage.engine import StorageEngine
from leveret.storage.format import SEGMENT_HEADER_BYTES, scan, unpack_segment_header
from leveret.storage.message import Envelope, Message
from leveret.storage.recovery.recovery_report import DamageReport
from tests.crash.test_cut_and_flip import ACTIVE, RUNNING
from tests.support.segment_stores import Clock, open_engine
from tests.support.simulated_files import ROOT, SimulatedFiles

CONTENTS = RUNNING[0]
QUEUE_FILE = f"{ROOT}/q/00000001/QUEUE.json"
MANIFEST = f"{ROOT}/q/00000001/MANIFEST"
EVENTS = max(path for path in CONTENTS if "/events/" in path)
CHECKPOINTS = [path for path in CONTENTS if "/ckpt/" in path]
SEALED = [path for path in CONTENTS if path.endswith(".seg") and path != ACTIVE]


def recover(contents: dict[str, bytes]) -> StorageEngine:
    files = SimulatedFiles()
    files.restore(contents)
    return open_engine(files, Clock(1_800_000_000_000_000))


def damaged_paths(contents: dict[str, bytes]) -> set[str]:
    return {damage.path for damage in recover(contents).report.damage}


def flipped(path: str) -> Iterator[tuple[int, dict[str, bytes]]]:
    for at in range(len(CONTENTS[path])):
        octets = bytearray(CONTENTS[path])
        octets[at] ^= 1 << at % 8
        yield at, CONTENTS | {path: bytes(octets)}


def salt_of(path: str) -> int:
    header = unpack_segment_header(CONTENTS[path])
    assert header is not None
    return header.salt


def test_nothing_is_reported_where_nothing_is_wrong() -> None:
    report = recover(CONTENTS).report
    assert [*report.lines()] == []
    assert "damaged" not in report.summary()


@pytest.mark.parametrize("path", [QUEUE_FILE, MANIFEST, ACTIVE, *CHECKPOINTS])
def test_every_flipped_byte_is_reported(path: str) -> None:
    for at, contents in flipped(path):
        if path == QUEUE_FILE and at == len(CONTENTS[path]) - 1:
            # The line feed at the end means nothing.
            continue
        if path == CHECKPOINTS[0]:
            # That of the newer one makes no use of the older one, which is read nevertheless.
            assert damaged_paths(contents) <= {path}
        elif path == ACTIVE:
            # The padding of a record means nothing.
            report = recover(contents).report
            assert {damage.path for damage in report.damage} == {path} or report.messages == len(RUNNING[2]), at
        else:
            assert damaged_paths(contents) == {path}, at


def test_every_flipped_byte_of_events_that_are_needed_is_reported() -> None:
    seen = [at for at, contents in flipped(EVENTS) if damaged_paths(contents) == {EVENTS}]
    # The head, and what happened after the last checkpoint.
    assert {*range(40), *range(len(CONTENTS[EVENTS]) - 40, len(CONTENTS[EVENTS]))} <= {*seen}


@pytest.mark.parametrize("path", [QUEUE_FILE, EVENTS, *SEALED, *CHECKPOINTS])
def test_a_file_that_is_gone_is_reported(path: str) -> None:
    contents = {name: octets for name, octets in CONTENTS.items() if name != path}
    if path in CHECKPOINTS:
        contents = {name: octets for name, octets in CONTENTS.items() if name not in CHECKPOINTS}
        assert damaged_paths(contents) == {f"{ROOT}/ckpt"}
    else:
        assert damaged_paths(contents) == {path}


def test_a_new_file_of_events_that_is_gone_is_reported() -> None:
    files, clock = SimulatedFiles(), Clock()
    engine = open_engine(files, clock)
    store = engine.store(engine.create_queue(True, {"name": "q"}))
    store.append([Message(Envelope(b"\x00\x01q", bytes(14), True), b"body")] * 2, 8)
    engine.flush()
    engine.commit()
    before = {*files.snapshot()}
    store.settle(store.take(1, 1)[0])
    engine.flush()
    engine.housekeeping()
    contents = files.snapshot()
    (newest,) = [path for path in {*contents} - before if "/events/ev-" in path]
    del contents[newest]
    (damage,) = recover(contents).report.damage
    assert damage.path == newest
    assert damage.what == "is missing; messages that it removed after the last checkpoint come back"


@pytest.mark.parametrize("path", [EVENTS, *SEALED, *CHECKPOINTS[-1:], ACTIVE])
def test_a_file_that_was_cut_is_reported(path: str) -> None:
    # Without its footer a sealed segment is whole.
    cut = 150 if path in SEALED else 3
    assert damaged_paths(CONTENTS | {path: CONTENTS[path][:-cut]}) == {path}


def test_a_write_that_power_cut_short_is_not_called_a_loss() -> None:
    octets = CONTENTS[ACTIVE]
    # The file has got its length, but not all of its bytes.
    report = recover(CONTENTS | {ACTIVE: octets[:-40] + bytes(40)}).report
    assert (report.lost_messages, report.unfinished_messages) == (0, 1)
    (line,) = report.lines()
    assert line.endswith("a write that was cut short before it was synced: the bytes of 1 messages are not there")
    assert "0 messages lost, 1 messages whose write was cut short before it was synced" in report.summary()


def test_what_was_lost_is_said_in_one_line(caplog: pytest.LogCaptureFixture) -> None:
    path = SEALED[0]
    with caplog.at_level(logging.WARNING):
        report = recover({name: octets for name, octets in CONTENTS.items() if name != path}).report
    assert report.lost_messages > 0
    (record,) = caplog.records
    assert record.getMessage() == (
        f"recovery: {path}: is missing or holds no whole record; {report.lost_messages} messages lost"
    )
    assert f"1 damaged files, {report.lost_messages} messages lost" in report.summary()


def test_a_damaged_place_is_told_by_its_bytes() -> None:
    contents = bytearray(CONTENTS[SEALED[0]][:-150])
    found = scan(bytes(contents), salt_of(SEALED[0]), 1)
    start, end = found.offsets[1], found.offsets[2]
    contents[start + 20] ^= 1
    # The footer is gone too, so that the file is read.
    report = recover(CONTENTS | {SEALED[0]: bytes(contents)}).report
    assert f"{SEALED[0]}: bytes {start} to {end} hold no whole record" in [
        line.partition(";")[0] for line in report.lines()
    ]


def test_what_was_still_written_to_need_not_have_been_confirmed() -> None:
    contents = bytearray(CONTENTS[ACTIVE])
    contents[SEGMENT_HEADER_BYTES + 20] ^= 1
    report = recover(CONTENTS | {ACTIVE: bytes(contents)}).report
    (line,) = report.lines()
    assert line.endswith(
        "hold no whole record; up to 1 messages lost:"
        " it was written to until the end, and not all need have been confirmed"
    )
    assert report.uncertain_messages == report.lost_messages == 1
    assert "up to 1 messages lost" in report.summary()


def test_what_was_lost_may_have_been_acknowledged_where_events_are_missing() -> None:
    gone = {EVENTS, SEALED[0]}
    report = recover({name: octets for name, octets in CONTENTS.items() if name not in gone}).report
    (line,) = [line for line in report.lines() if SEALED[0] in line]
    assert line.endswith("messages lost: some may have been acknowledged, as events are missing")
    assert f"up to {report.lost_messages} messages lost" in report.summary()


def test_a_number_without_a_record_may_have_been_a_transient_message() -> None:
    files = SimulatedFiles()
    engine = open_engine(files)
    store = engine.store(engine.create_queue(True, {"name": "q"}))
    for number in range(40):
        store.append([Message(Envelope(b"\x00\x01q", bytes(14), number % 2 == 0), b"x" * 20)], 20)
        engine.flush()
        engine.commit()
    path = f"{ROOT}/q/00000001/{store.log.segments[0].name}"
    records = store.log.segments[0].count
    contents = files.snapshot()
    del contents[path]
    report = recover(contents).report
    (line,) = report.lines()
    assert line == (
        f"{path}: is missing or holds no whole record; up to {records} messages lost:"
        " some of their numbers may have been those of transient messages"
    )


def test_a_queue_file_that_was_damaged_is_written_anew() -> None:
    files = SimulatedFiles()
    files.restore(CONTENTS | {QUEUE_FILE: CONTENTS[QUEUE_FILE].replace(b'"q"', b'"p"')})
    first = open_engine(files, Clock(1_800_000_000_000_000))
    assert [damage.path for damage in first.report.damage] == [QUEUE_FILE]
    assert first.report.messages == len(RUNNING[2])
    files.stop()
    again = open_engine(files, Clock(1_900_000_000_000_000))
    assert (again.report.damage, again.report.messages) == ([], first.report.messages)
    assert again.queues[1].attributes == {}
    assert b'"p"' in files.snapshot()[f"{QUEUE_FILE}.bad"]


def test_damage_says_how_many_messages() -> None:
    assert str(DamageReport("f", "is cut", 0)) == "f: is cut"
    assert str(DamageReport("f", "is cut", 2)) == "f: is cut; 2 messages lost"
    assert str(DamageReport("f", "is cut", 2, "who knows")) == "f: is cut; up to 2 messages lost: who knows"


@pytest.mark.parametrize("size", [0, SEGMENT_HEADER_BYTES])
@pytest.mark.parametrize("has_checkpoint", [True, False])
def test_a_segment_that_ends_before_its_first_record(size: int, has_checkpoint: bool) -> None:
    files = SimulatedFiles()
    engine = open_engine(files)
    store = engine.store(engine.create_queue(True, {"name": "small"}))
    store.append([Message(Envelope(b"\x00\x01q", bytes(14), True, 0), b"x") for _ in range(3)], 1)
    engine.flush()
    engine.commit()
    if has_checkpoint:
        engine.checkpoint()
    contents = files.snapshot()
    (path,) = [each for each in contents if each.endswith(".seg")]
    report = recover(contents | {path: contents[path][:size]}).report
    lines = [*report.lines()]
    if not size and not has_checkpoint:
        # As after the end of the process before its first write.
        assert lines == []
        return
    (line,) = lines
    assert line.startswith(f"{path}: ends before its first record")
    assert report.lost_messages == (3 if has_checkpoint else 0)


def test_all_files_of_a_store_but_one_are_gone() -> None:
    files = SimulatedFiles()
    engine = open_engine(files)
    store = engine.store(engine.create_queue(True, {"name": "s", "persists_transient": True}))
    store.append([Message(Envelope(b"\x00\x01q", bytes(14), False, 0), b"x") for _ in range(3)], 1)
    engine.flush()
    engine.checkpoint()
    contents = files.snapshot()
    left = {path: octets for path, octets in contents.items() if "/q/" not in path or path.endswith("QUEUE.json")}
    report = recover(left).report
    (line,) = report.lines()
    assert "MANIFEST: is missing, and there are no segments beside it; up to 3 messages lost" in line
