from __future__ import annotations

import errno
import logging
from pathlib import Path

import pytest

from leveret.storage.disk.files import DiskFiles, UnreadableFileError
from leveret.storage.readers.holds import NO_HOLDS, Content
from leveret.storage.readers.reader_file import ReaderFile, write_reader
from leveret.storage.readers.readers import Readers

NOW = 1_700_000_000_000_000
QUEUES = {1: ("/", "orders")}
ALL = 1 << 62


class FailingFiles(DiskFiles):
    """Directories cannot be listed for a while."""

    __slots__ = ("failures",)

    def __init__(self) -> None:
        super().__init__()
        self.failures = 0

    def list_directory(self, path: str) -> list[str]:
        if self.failures:
            self.failures -= 1
            raise OSError(errno.EIO, "Input/output error")
        return super().list_directory(path)


@pytest.fixture
def files() -> FailingFiles:
    return FailingFiles()


@pytest.fixture
def readers(files: FailingFiles, tmp_path: Path) -> Readers:
    write_reader(files, str(tmp_path), ReaderFile("lake", "/", None, NOW, NOW, {"1/0": 5}))
    return Readers(files, str(tmp_path), ALL, ALL)


def test_one_failure_is_not_noticed(files: FailingFiles, readers: Readers) -> None:
    files.failures = 1
    assert readers.refresh(NOW, lambda: QUEUES)
    assert [*readers.known] == ["lake"]


def test_what_is_known_stays_as_long_as_nothing_can_be_read(
    files: FailingFiles, readers: Readers, caplog: pytest.LogCaptureFixture
) -> None:
    readers.refresh(NOW, lambda: QUEUES)
    files.failures = 1000
    with caplog.at_level(logging.ERROR, "leveret.storage"):
        assert not readers.refresh(NOW, lambda: QUEUES)
        assert not readers.refresh(NOW, lambda: QUEUES)
    assert readers.holds.needs(Content(1, 0, 5))
    (line,) = caplog.messages
    assert "readers cannot be read: Input/output error" in line
    assert line.endswith("until then what the named readers need stays")
    files.failures = 0
    assert readers.drop("lake")
    readers.refresh(NOW, lambda: QUEUES)
    assert readers.holds == NO_HOLDS


def test_without_knowing_them_nothing_begins(files: FailingFiles, readers: Readers) -> None:
    files.failures = 2
    with pytest.raises(UnreadableFileError, match="readers cannot be read"):
        readers.refresh(NOW)
