from __future__ import annotations

from pathlib import Path

import pytest

from leveret.storage.disk.files import DiskFiles
from leveret.storage.readers.reader_file import (
    READERS,
    ReaderFile,
    ReaderFileError,
    is_reader_name,
    list_files,
    pack_reader,
    read_reader,
    unpack_reader,
    write_reader,
)

READER = ReaderFile("lake-1", None, "orders.*", 1_700_000_000_000_000, 1_700_000_005_000_000, {"1/0": 41, "7/9": 3})


def test_the_file_of_a_backup_is_none_that_an_older_version_takes_for_a_reader(tmp_path: Path) -> None:
    backup = ReaderFile("b", None, None, 1, 2, since=3)
    write_reader(DiskFiles(), str(tmp_path), backup)
    assert read_reader(DiskFiles(), str(tmp_path), "b") == backup
    assert not backup.wants("/", "q")
    assert b'"format": 2' in pack_reader(backup)
    assert b'"format": 1' in pack_reader(READER)


def test_a_file_is_written_and_read(tmp_path: Path) -> None:
    files = DiskFiles()
    assert read_reader(files, str(tmp_path), "lake-1") is None
    assert list_files(files, str(tmp_path)) == []
    write_reader(files, str(tmp_path), READER)
    assert read_reader(files, str(tmp_path), "lake-1") == READER
    (tmp_path / READERS / "lake-1.tmp").write_bytes(b"")
    assert list_files(files, str(tmp_path)) == ["lake-1"]


def test_which_queues_a_reader_reads() -> None:
    assert READER.wants("any", "orders.eu")
    assert not READER.wants("any", "order")
    assert ReaderFile("r", "/", None, 0, 0).wants("/", "q")
    assert not ReaderFile("r", "/", None, 0, 0).wants("other", "q")


@pytest.mark.parametrize("name", ["", ".x", "a/b", "a b", "-a", "a" * 65, "é", "a.tmp", ".."])
def test_names_that_a_reader_cannot_have(name: str) -> None:
    assert not is_reader_name(name)


def test_every_damage_is_an_error_that_names_the_file() -> None:
    octets = pack_reader(READER)
    for at in range(len(octets) - 1):
        damaged = octets[:at] + bytes([octets[at] ^ 1]) + octets[at + 1 :]
        for each in (damaged, octets[:at]):
            with pytest.raises(ReaderFileError, match=r"^/d/readers/lake-1 is damaged: delete it"):
                unpack_reader(each, "/d/readers/lake-1")
    for each in (b"", b"[]", b"null", b"[" * 100_000, b"\xff"):
        with pytest.raises(ReaderFileError, match="is damaged"):
            unpack_reader(each, "f")


def test_a_file_of_a_newer_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("leveret.storage.readers.reader_file._FORMAT", 3)
    octets = pack_reader(READER)
    monkeypatch.undo()
    with pytest.raises(ReaderFileError, match="written by a newer version"):
        unpack_reader(octets, "f")


def test_a_directory_in_place_of_the_file(tmp_path: Path) -> None:
    (tmp_path / READERS / "r").mkdir(parents=True)
    with pytest.raises(ReaderFileError, match="cannot be read"):
        read_reader(DiskFiles(), str(tmp_path), "r")
