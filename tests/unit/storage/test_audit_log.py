"""The audit log: what is written is read, a torn end is cut off, and what is too old or too much goes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final
from zlib import crc32

import pytest

from leveret.storage.audit_log import AuditLog, audit_files, file_name
from leveret.storage.disk.files import DiskFiles
from leveret.storage.json_records import unpack_records

STORE_ID: Final = bytes(range(16))
DAY: Final = 86_400_000_000


class Time:
    """A clock that tests set."""

    def __init__(self) -> None:
        self.now = 1_700_000_000_000_000

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock() -> Time:
    return Time()


def open_log(path: Path, clock: Time, **options: int) -> AuditLog:
    return AuditLog(DiskFiles(), str(path), STORE_ID, clock, **options)


def records(path: Path) -> list[Any]:
    found = []
    for file in sorted((path / "audit").glob("au-*.log")):
        found += [json.loads(each) for each in unpack_records(file.read_bytes(), crc32(STORE_ID))]
    return found


def add(log: AuditLog, *numbers: int) -> None:
    for number in numbers:
        log.add({"n": number})
    log.write()


def test_records_are_appended_across_starts(tmp_path: Path, clock: Time) -> None:
    log = open_log(tmp_path, clock)
    add(log, 1, 2)
    log.close()
    log = open_log(tmp_path, clock)
    add(log, 3)
    log.close()
    assert [each["n"] for each in records(tmp_path)] == [1, 2, 3]
    # What was written before the start never changes: a reader may have read more of it than the disk had.
    assert len(audit_files(DiskFiles(), str(tmp_path / "audit"))) == 2


def test_what_is_written_is_synced_once(tmp_path: Path, clock: Time) -> None:
    log = open_log(tmp_path, clock, file_bytes=1)
    assert log.take_unsynced() == ([], False)
    add(log, 1)
    add(log, 2)
    files = [f"{log.directory}/{file_name(time)}" for time in audit_files(DiskFiles(), log.directory)]
    assert log.take_unsynced() == (files, True)
    assert log.take_unsynced() == ([], False)
    log.close()


@pytest.mark.parametrize("left", [1, 7, 8, 9, 14])
def test_a_torn_end_is_cut_off(tmp_path: Path, clock: Time, left: int, caplog: pytest.LogCaptureFixture) -> None:
    log = open_log(tmp_path, clock)
    add(log, 1, 2)
    log.abandon()
    (file,) = (tmp_path / "audit").iterdir()
    octets = file.read_bytes()
    file.write_bytes(octets[: len(octets) // 2 + left])
    log = open_log(tmp_path, clock)
    assert [f"the last {left} bytes are no whole record" in text for text in caplog.messages] == [True]
    add(log, 3)
    log.close()
    assert [each["n"] for each in records(tmp_path)] == [1, 3]


def test_a_damaged_record_ends_its_file(tmp_path: Path, clock: Time) -> None:
    log = open_log(tmp_path, clock)
    add(log, 1, 2, 3)
    log.abandon()
    (file,) = (tmp_path / "audit").iterdir()
    octets = bytearray(file.read_bytes())
    octets[len(octets) // 3 + 9] ^= 1
    file.write_bytes(bytes(octets))
    assert [each["n"] for each in records(tmp_path)] == [1]


def test_a_file_is_full_or_a_day_old(tmp_path: Path, clock: Time) -> None:
    log = open_log(tmp_path, clock, file_bytes=20)
    add(log, 1, 2)
    add(log, 3)
    clock.now += DAY + 1
    add(log, 4)
    log.close()
    assert len(audit_files(DiskFiles(), str(tmp_path / "audit"))) == 3
    assert [each["n"] for each in records(tmp_path)] == [1, 2, 3, 4]


def test_what_is_too_old_goes(tmp_path: Path, clock: Time) -> None:
    log = open_log(tmp_path, clock, keep_seconds=2 * 86_400)
    for day in range(6):
        add(log, day)
        clock.now += DAY
    log.close()
    # A file goes when its last record may be two days old.
    assert [each["n"] for each in records(tmp_path)] == [2, 3, 4, 5]


def test_what_is_too_much_goes(tmp_path: Path, clock: Time) -> None:
    log = open_log(tmp_path, clock, keep_bytes=45, file_bytes=1)
    for number in range(9):
        add(log, number)
        clock.now += 1
    log.close()
    # Three full files, and the one that is written.
    assert [each["n"] for each in records(tmp_path)] == [5, 6, 7, 8]


def test_a_disk_that_refuses_loses_nothing_that_fits_into_memory(
    tmp_path: Path, clock: Time, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    log = open_log(tmp_path, clock)
    add(log, 1)

    def refuse(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(DiskFiles, "append", refuse)
    add(log, 2)
    add(log, 3)
    assert len([text for text in caplog.messages if "cannot be written" in text]) == 1
    for _ in range(17):
        log.add({"n": "x" * (1 << 20)})
    assert log.lost == 2
    log._waiting = log._waiting[:2]
    monkeypatch.undo()
    log.close()
    assert [each["n"] for each in records(tmp_path)] == [1, 2, 3]
    assert caplog.messages[-1] == "the audit log is written again; 2 records are lost"


def test_names_sort_by_time() -> None:
    assert file_name(5) < file_name(10**15)
