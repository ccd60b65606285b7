"""A data directory of an older format is upgraded, and a kill at any moment leaves the old one or the new one."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from contextlib import suppress

import pytest

from leveret.storage.directory.data_directory import DataDirectory
from leveret.storage.directory.directory_format import (
    Change,
    DataDirectoryError,
    Migration,
    UpgradeError,
    complete_upgrade,
    pack_format,
    unpack_format,
    upgrade,
)
from leveret.storage.disk.files import Files
from tests.support.crashing_files import CrashingFiles
from tests.support.simulated_files import ROOT

_STORE_ID = bytes(range(16))
_OLD = {
    f"{ROOT}/FORMAT": pack_format(_STORE_ID, 7, 1),
    f"{ROOT}/q/00000001/QUEUE.json": b"first\n",
    f"{ROOT}/q/00000002/QUEUE.json": b"second\n",
    f"{ROOT}/events/0000.log": b"events",
    f"{ROOT}/untouched": b"as it was",
}
_NEW = {
    f"{ROOT}/FORMAT": pack_format(_STORE_ID, 7, 3),
    f"{ROOT}/q/00000001/QUEUE.json": b"FIRST\n\x02",
    f"{ROOT}/q/00000002/QUEUE.json": b"SECOND\n\x02",
    f"{ROOT}/names/00000001/name": b"of 1",
    f"{ROOT}/untouched": b"as it was",
}


def _queues(files: Files, path: str) -> list[str]:
    return [f"q/{name}/QUEUE.json" for name in files.list_directory(f"{path}/q")]


def _to_2(files: Files, path: str) -> Iterator[Change]:
    """Queues are written in capitals; the event log is gone."""
    for name in _queues(files, path):
        yield name, (files.read_all(f"{path}/{name}") or b"").upper()
    yield "events/0000.log", None


def _to_3(files: Files, path: str) -> Iterator[Change]:
    """Queues have a number behind them, and the first one a name in a directory that is new."""
    for name in _queues(files, path):
        yield name, (files.read_all(f"{path}/{name}") or b"") + b"\x02"
    yield "names/00000001/name", b"of 1"


_MIGRATIONS = {1: Migration("capitals", _to_2), 2: Migration("numbers", _to_3)}


def _old_directory() -> CrashingFiles:
    files = CrashingFiles()
    files.restore(_OLD)
    files.changes = 0
    return files


def _upgrade(files: Files, migrations: Mapping[int, Migration] = _MIGRATIONS) -> None:
    """What the start does."""
    complete_upgrade(files, ROOT)
    found = unpack_format(files.read_all(f"{ROOT}/FORMAT") or b"")
    assert found is not None
    upgrade(files, ROOT, found, 3, migrations)


def _contents(files: CrashingFiles) -> dict[str, bytes]:
    """All that is not a backup."""
    return {path: octets for path, octets in files.snapshot().items() if not path.startswith(f"{ROOT}/backup/")}


def _backups(files: CrashingFiles) -> dict[str, bytes]:
    return {path: octets for path, octets in files.snapshot().items() if path.startswith(f"{ROOT}/backup/")}


_KEPT = {
    f"{ROOT}/backup/format-1/FORMAT": _OLD[f"{ROOT}/FORMAT"],
    f"{ROOT}/backup/format-1/q/00000001/QUEUE.json": b"first\n",
    f"{ROOT}/backup/format-1/q/00000002/QUEUE.json": b"second\n",
    f"{ROOT}/backup/format-1/events/0000.log": b"events",
    f"{ROOT}/backup/format-2/FORMAT": pack_format(_STORE_ID, 7, 2),
    f"{ROOT}/backup/format-2/q/00000001/QUEUE.json": b"FIRST\n",
    f"{ROOT}/backup/format-2/q/00000002/QUEUE.json": b"SECOND\n",
}


def test_an_upgrade_over_two_formats() -> None:
    files = _old_directory()
    _upgrade(files)
    assert _contents(files) == _NEW
    assert _backups(files) == _KEPT
    before = files.changes
    _upgrade(files)
    assert files.changes == before, "nothing is left to be done"


def test_a_kill_or_a_loss_of_power_at_any_moment() -> None:
    whole = _old_directory()
    _upgrade(whole)
    assert whole.changes > 50
    for power in (False, True):
        for changes in range(whole.changes):
            files = _old_directory()
            with files.dying(changes):
                _upgrade(files)
            assert files.is_dead
            if power:
                files.crash(random.Random(changes))
            else:
                files.stop()
            _assert_old_or_new(files)
            _upgrade(files)
            assert _contents(files) == _NEW, changes
            assert _backups(files) == _KEPT, changes


def _assert_old_or_new(files: CrashingFiles) -> None:
    """Without a journal the directory is whole, in one of the formats; with one an older version refuses it."""
    found = unpack_format(files.read_all(f"{ROOT}/FORMAT") or b"")
    assert found is not None
    if files.read_all(f"{ROOT}/UPGRADE") is None:
        queue = {1: b"first\n", 2: b"FIRST\n", 3: b"FIRST\n\x02"}[found.format]
        assert files.read_all(f"{ROOT}/q/00000001/QUEUE.json") == queue
    elif files.read_all(f"{ROOT}/q/00000001/QUEUE.json") != b"first\n":
        assert found.min_reader > 1


def test_a_kill_while_an_interrupted_upgrade_is_completed() -> None:
    whole = _old_directory()
    _upgrade(whole)
    rng = random.Random(4)
    for first in range(0, whole.changes, 3):
        files = _old_directory()
        with files.dying(first):
            _upgrade(files)
        for _ in range(3):
            files.crash(rng)
            with files.dying(rng.randrange(12)):
                _upgrade(files)
        files.crash(rng)
        _upgrade(files)
        assert _contents(files) == _NEW


def test_no_room_leaves_the_old_directory() -> None:
    for room in range(0, 600, 7):
        files = _old_directory()
        files.room = room
        with suppress(OSError):
            _upgrade(files)
        files.room = None
        _assert_old_or_new(files)
        _upgrade(files)
        assert _contents(files) == _NEW


def test_a_format_that_is_too_old() -> None:
    with pytest.raises(
        UpgradeError, match="format 1, which this version cannot upgrade to format 3; start an intermediate"
    ):
        _upgrade(_old_directory(), {2: _MIGRATIONS[2]})


def test_a_damaged_journal() -> None:
    files = _old_directory()
    files.restore(_OLD | {f"{ROOT}/UPGRADE": b'{"changes": [], "crc": 1}'})
    with pytest.raises(UpgradeError, match="UPGRADE is damaged"):
        _upgrade(files)


def test_the_data_directory_upgrades_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    files = _old_directory()
    for module in ("data_directory", "directory_format"):
        monkeypatch.setattr(f"leveret.storage.directory.{module}.FORMAT_VERSION", 3)
    with pytest.raises(DataDirectoryError, match="cannot upgrade to format 3"):
        DataDirectory(files, ROOT, lambda: 0)
    monkeypatch.setattr("leveret.storage.directory.directory_format.MIGRATIONS", _MIGRATIONS)
    monkeypatch.setattr(upgrade, "__defaults__", (_MIGRATIONS,))
    directory = DataDirectory(files, ROOT, lambda: 0)
    assert (directory.format.format, directory.store_id) == (3, _STORE_ID)
    assert files.read_all(f"{ROOT}/q/00000001/QUEUE.json") == b"FIRST\n\x02"
    directory.close()
