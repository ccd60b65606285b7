from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from leveret.storage.directory.archive_note import NAME, ArchiveNote, pack_note, read_note, unpack_note, write_note
from leveret.storage.disk.files import DiskFiles
from leveret.storage.format import pack_checked


def test_a_note_is_written_once(tmp_path: Path) -> None:
    files = DiskFiles()
    assert read_note(files, str(tmp_path)) is None
    write_note(files, str(tmp_path), ArchiveNote("s3://bucket/archive", "one"))
    before = os.stat(tmp_path / NAME).st_ino
    write_note(files, str(tmp_path), ArchiveNote("s3://bucket/archive", "one"))
    assert os.stat(tmp_path / NAME).st_ino == before
    write_note(files, str(tmp_path), ArchiveNote("/mnt/archive", "one"))
    assert read_note(files, str(tmp_path)) == ArchiveNote("/mnt/archive", "one")
    assert os.listdir(tmp_path) == [NAME]


@pytest.mark.parametrize(
    ("url", "noted"),
    [
        ("s3://key:secret@bucket/archive", "s3://bucket/archive"),
        ("sftp://me:p@ss@host:22/archive", "sftp://host:22/archive"),
        ("abfss://container@account.dfs.core.windows.net/archive", None),
        ("sftp://me@host:22/a:b@c", None),
        ("sftp://host:22/a@b", None),
        ("filecache::ftp://me:un/escaped@host/archive", "filecache::ftp://host/archive"),
        ("az://container/archive?sv=1&sig=ab/c%3D", "az://container/archive"),
        ("file:///mnt/what?@home", None),
        ("/mnt/a:b@c", None),
    ],
)
def test_passwords_are_not_noted(url: str, noted: str | None) -> None:
    assert unpack_note(pack_note(ArchiveNote(url, "one"))) == ArchiveNote(noted or url, "one")


@pytest.mark.parametrize(
    "octets",
    [
        b"",
        b"\xff",
        b"[1]",
        b"{}",
        pack_note(ArchiveNote("/mnt/archive", "one")).replace(b"mnt", b"mmt"),
        pack_checked({"format": 2, "url": "/mnt/archive", "broker": "one"}),
        pack_checked({"format": 1}),
        pack_checked({"format": 1, "url": 5, "broker": "one"}),
        pack_checked({"format": 1, "url": "/mnt/archive", "broker": "\ud800"}),
        b"[" * 50_000,
        pack_note(ArchiveNote("/mnt/" + "a" * 100_000, "one")),
    ],
)
def test_what_cannot_be_read_counts_as_none(tmp_path: Path, octets: bytes) -> None:
    (tmp_path / NAME).write_bytes(octets)
    assert read_note(DiskFiles(), str(tmp_path)) is None


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo, lambda path: os.symlink("/dev/zero", path)])
def test_what_is_no_file_counts_as_none(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / NAME)
    assert read_note(DiskFiles(), str(tmp_path)) is None
