"""The file system interface of the store."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from leveret.storage.disk.files import DiskFiles


def test_overwriting_changes_nothing_else(tmp_path: Path) -> None:
    files, path = DiskFiles(), tmp_path / "file"
    path.write_bytes(b"0123456789")
    files.overwrite(str(path), b"abc", 4)
    assert path.read_bytes() == b"0123abc789"
    files.overwrite(str(path), b"xyz", 9)
    assert path.read_bytes() == b"0123abc78xyz"
    with pytest.raises(FileNotFoundError):
        files.overwrite(str(tmp_path / "other"), b"abc", 0)


def test_a_pipe_in_place_of_a_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "f")
    with pytest.raises(OSError, match="it is not a regular file"):
        DiskFiles().read_all(f"{tmp_path}/f")


def test_files_of_other_programs_have_a_limit(tmp_path: Path) -> None:
    path = f"{tmp_path}/f"
    assert DiskFiles().read_foreign(path, 3) is None
    (tmp_path / "f").write_bytes(b"abc")
    assert DiskFiles().read_foreign(path, 3) == b"abc"
    with pytest.raises(OSError, match="it is longer than 2 bytes"):
        DiskFiles().read_foreign(path, 2)
