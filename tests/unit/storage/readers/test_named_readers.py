from __future__ import annotations

import errno
import json
import logging
import os
import random
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import pytest

from leveret.storage.clock import Clock
from leveret.storage.disk.files import DiskFiles, UnreadableFileError, UnsyncedFiles
from leveret.storage.disk.trash import NO_HOLDS, Content, Hold, Holds, Trash
from leveret.storage.engine import EngineOptions, StorageEngine
from leveret.storage.format import pack_checked
from leveret.storage.readers.named_readers import NamedReaders
from leveret.storage.readers.reader_file import READERS, ReaderFile, pack_reader, write_reader

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
def readers(files: FailingFiles, tmp_path: Path) -> NamedReaders:
    write_reader(files, str(tmp_path), ReaderFile("lake", "/", None, NOW, NOW, {"1/0": 5}))
    return NamedReaders(files, str(tmp_path), Trash(files), ALL, ALL, Clock())


def refresh(readers: NamedReaders, queues: dict[int, tuple[str, str]] = QUEUES) -> list[int]:
    return [*readers.refresh(NOW, lambda: queues)]


def forged(name: str, changes: Mapping[str, object] = MappingProxyType({})) -> bytes:
    """Return a reader's file with a right checksum."""
    fields = json.loads(pack_reader(ReaderFile(name, "/", None, NOW, NOW, {"1/0": 5})))
    del fields["crc"]
    return pack_checked({**fields, **changes})


def test_one_failure_is_not_noticed(files: FailingFiles, readers: NamedReaders) -> None:
    files.failures = 1
    refresh(readers)
    assert readers.reads(1)
    assert [*readers.known] == ["lake"]


def test_what_is_known_stays_as_long_as_nothing_can_be_read(
    files: FailingFiles, readers: NamedReaders, caplog: pytest.LogCaptureFixture
) -> None:
    refresh(readers)
    files.failures = 1000
    with caplog.at_level(logging.ERROR, "leveret.storage"):
        refresh(readers)
        refresh(readers)
    assert readers.holds.needs(Content(1, 0, 5))
    (line,) = caplog.messages
    assert "readers cannot be read: Input/output error" in line
    assert line.endswith("until then what the named readers need stays")
    files.failures = 0
    assert readers.drop("lake")
    refresh(readers)
    assert readers.holds is NO_HOLDS


def test_without_knowing_them_nothing_begins(files: FailingFiles, readers: NamedReaders) -> None:
    files.failures = 2
    with pytest.raises(UnreadableFileError, match="readers cannot be read"):
        readers.begin(NOW)


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "../definitions.sqlite", "seen": 1},
        {"name": "y", "seen": 1},
        {"vhost": 5},
        {"queue": ["a"]},
        {"queue": "\ud800"},
        {"queue": "*a" * 1000},
        {"seen": 1e999},
        {"seen": "1"},
        {"seen": 10**30},
        {"created": -1},
        {"next": {"1/0": 1.5}},
        {"next": {"1/0": True}},
        {"next": {"1": 1}},
        {"next": {"1/0": 10**30}},
        {"next": []},
        {"format": "1"},
    ],
)
def test_contents_are_checked_and_the_name_is_that_of_the_file(
    files: FailingFiles,
    readers: NamedReaders,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    changes: dict[str, object],
) -> None:
    (tmp_path / "definitions.sqlite").write_bytes(b"users")
    where = tmp_path / READERS / "x"
    where.write_bytes(forged("x", changes))
    young = NamedReaders(files, str(tmp_path), Trash(files), 1_000_000, ALL, Clock())
    with caplog.at_level(logging.ERROR, "leveret.storage"):
        young.begin(NOW)
        for _ in range(3):
            refresh(young)
    assert [*young.known] == ["lake"]
    assert young.reads(1)
    (line,) = caplog.messages
    assert line == (
        f"reader x: {where} is damaged: delete it, and the reader is made again where its query is;"
        " until then nothing is kept for it"
    )
    assert sorted(each.name for each in tmp_path.rglob("*") if each.is_file()) == ["definitions.sqlite", "lake", "x"]


def test_only_regular_files_of_some_length_are_read(
    readers: NamedReaders, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    place = tmp_path / READERS
    (place / "directory").mkdir()
    os.mkfifo(place / "pipe")
    (place / "link").symlink_to(place / "lake")
    with (place / "long").open("wb") as file:
        file.truncate(1 << 40)
    for name in ("a b", "two\nlines", ".hidden"):
        (place / name).write_bytes(forged(name))
    with caplog.at_level(logging.ERROR, "leveret.storage"):
        readers.begin(NOW)
        for _ in range(3):
            refresh(readers)
    assert [*readers.known] == ["lake"]
    lines = sorted(caplog.messages)
    assert [each.split(": ")[0] for each in lines] == [
        "reader '.hidden'", "reader 'a b'", "reader 'two\\nlines'",
        "reader directory", "reader link", "reader long", "reader pipe",
    ]  # fmt: skip
    assert "pipe cannot be read: it is not a regular file" in lines[-1]
    assert "link cannot be read: it is a symbolic link" in lines[-3]


def test_a_file_that_is_damaged_later_and_repaired(
    readers: NamedReaders, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    refresh(readers)
    where = tmp_path / READERS / "lake"
    whole = where.read_bytes()
    with caplog.at_level(logging.ERROR, "leveret.storage"):
        for octets in (b"", b"{", whole, b""):
            where.write_bytes(octets)
            refresh(readers)
            assert readers.holds.needs(Content(1, 0, 5))
    assert len(caplog.messages) == 2

    where.write_bytes(forged("lake", {"vhost": "x"}))
    refresh(readers)
    assert not readers.reads(1)
    assert not readers.holds.needs(Content(1, 0, 5))
    refresh(readers, {**QUEUES, 2: ("x", "new")})
    readers.add_queue(2, "x", "new")
    assert readers.holds.needs(Content(2, 0, 5))
    readers.remove_queue(2)
    assert not readers.holds.needs(Content(2, 0, 5))


def test_a_draft_does_not_write_by_way_of_a_link(files: FailingFiles, readers: NamedReaders, tmp_path: Path) -> None:
    other = tmp_path / "definitions.sqlite"
    other.write_bytes(b"users")
    (tmp_path / READERS / "lake.tmp").symlink_to(other)
    write_reader(files, str(tmp_path), ReaderFile("lake", "/", None, NOW, NOW + 1, {}))
    assert other.read_bytes() == b"users"
    refresh(readers)
    assert readers.known["lake"].seen == NOW + 1


def test_many_readers_are_read_in_steps(tmp_path: Path) -> None:
    engine = StorageEngine(str(tmp_path), options=EngineOptions(ballast_bytes=0))
    numbers = {f"{qid}/0": 7 for qid in range(200)}
    now = Clock().now()
    for at in range(100):
        write_reader(UnsyncedFiles(), str(tmp_path), ReaderFile(f"r{at}", "/", None, now, now, numbers))
    engine.housekeeping()
    # What is made meanwhile is not forgotten.
    queue = engine.create_queue(True, {"vhost": "/", "name": "q"})
    steps = 1
    while engine.is_refreshing:
        engine.refresh_readers()
        steps += 1
    assert steps > 5
    assert engine.readers.counts.readers == 100
    assert engine.readers.reads(queue.qid)
    engine.delete_queue(queue)
    assert not engine.readers.reads(queue.qid)
    engine.close()


@pytest.mark.parametrize("seed", range(3))
def test_what_readers_have_not_read(seed: int) -> None:
    rng = random.Random(seed)
    holds = [
        Hold(f"r{at}", frozenset(rng.sample(range(4), 2)), {f"{rng.randrange(4)}/{rng.randrange(2)}": rng.randrange(9)})
        for at in range(4)
    ]
    files = [(Content(rng.randrange(4), rng.randrange(2), rng.randrange(9)), rng.randrange(1, 99)) for _ in range(30)]
    expected: dict[str, int] = {}
    for content, size in files:
        names = [
            each.reader
            for each in holds
            if content.qid in each.queues and content.last_seq >= each.next.get(f"{content.qid}/{content.priority}", 0)
        ]
        assert Holds(holds).needs(content) == bool(names)
        for name in names:
            expected[name] = expected.get(name, 0) + size
    assert {name: size for name, size in Holds(holds).unread_bytes(files).items() if size} == expected


def test_a_backup_needs_what_is_dropped_from_a_time_on() -> None:
    holds = Holds((), 100, since=50)
    content = Content(1, 0, 5)
    assert [holds.needs(content, dropped) for dropped in (49, 50, 51)] == [False, True, True]
    # Only files with messages that readers are promised.
    assert not holds.needs(None, 51)
    assert not Holds((), 100).needs(content, 51)
