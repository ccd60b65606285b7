"""The file system interface of the store."""

from __future__ import annotations

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
