from __future__ import annotations

import os
from pathlib import Path

import pytest

from storage.definitions import DefinitionsDatabase


def test_nobody_else_may_read_it(tmp_path: Path) -> None:
    """There are hashes of passwords in it, in its copy and in what SQLite writes beside it."""
    umask = os.umask(0o022)
    try:
        database = DefinitionsDatabase(tmp_path / "definitions.sqlite")
        database.put("user", ("guest",), {"password_hash": "x"})
        database.commit()
        modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
        database.close()
    finally:
        os.umask(umask)
    assert "definitions.copy.sqlite" in modes
    assert set(modes.values()) == {0o600}, modes


def test_its_copy_is_on_the_disk_before_it_takes_the_place_of_the_last_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    sync = os.fsync

    def fsync(handle: int) -> None:
        synced.append(os.fstat(handle).st_ino)
        sync(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    DefinitionsDatabase(tmp_path / "definitions.sqlite").close()
    copy = (tmp_path / "definitions.copy.sqlite").stat().st_ino
    assert synced[-2:] == [copy, tmp_path.stat().st_ino]
