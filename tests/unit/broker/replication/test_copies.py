"""A standby that does what a leader has recorded has the leader's files, byte for byte."""

from __future__ import annotations

import random
import shutil
import threading
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import cast

import pytest

from leveret.broker.replication.applying import Applier, OutOfStep, pack_changes
from leveret.broker.replication.copying import Moment
from leveret.broker.replication.frames import Frame, pack_frames
from leveret.broker.replication.node_record import OWN, NodeRecord, finish_switch, incoming, read_record, write_record
from leveret.storage.definitions_database import DefinitionsDatabase
from leveret.storage.disk.recording import OWN_NAMES, SPILL_SUFFIX, TRASH, Kind, Operation, Operations, RecordingFiles
from leveret.storage.engine import EngineOptions, StorageEngine
from leveret.storage.format import Stream
from leveret.storage.message import Envelope, Message
from leveret.storage.segments.segment import SUFFIXES

ENVELOPE = Envelope(b"\x00\x01q", b"\x00\x3c" + bytes(12), True)


def contents(root: Path) -> dict[str, bytes]:
    """Return the files of a data directory that a copy has."""
    found: dict[str, bytes] = {}
    for path in root.rglob("*"):
        relative = path.relative_to(root)
        own = relative.parts[0] in OWN_NAMES or relative.parts[0] == TRASH or relative.name.startswith("definitions.")
        if path.is_file() and not own:
            found[str(relative)] = path.read_bytes()
    return found


class Leader:
    """A store whose operations are recorded."""

    def __init__(self, root: Path, seed: int) -> None:
        self.root = root
        self.operations = Operations()
        self._random = random.Random(seed)
        self._numbers = count(1)
        options = EngineOptions(segment_bytes=4096, ballast_bytes=0, disk_free_limit=0, trash_bytes=0)
        self.engine = StorageEngine(str(root), files=RecordingFiles(str(root), self.operations), options=options)

    def frame(self) -> Frame:
        """Return what has been recorded since the last call."""
        first, operations = self.operations.take()
        (frame,) = pack_frames(1, first, operations)
        return frame

    def work(self) -> None:
        """Do something that queues do."""
        engine, choice = self.engine, self._random.random()
        if choice < 0.1 or not engine.queues:
            engine.store(engine.create_queue(True, {"vhost": "/", "name": f"q{next(self._numbers)}"}))
        elif choice < 0.13:
            engine.delete_queue(self._random.choice([*engine.queues.values()]))
        elif choice < 0.9:
            store = engine.store(self._random.choice([*engine.queues.values()]))
            bodies = [self._random.randbytes(self._random.randrange(400)) for _ in range(5)]
            store.append([Message(ENVELOPE, body) for body in bodies], sum(map(len, bodies)))
            entries, _ = store.take(self._random.randrange(9), 1 << 20)
            store.settle(entries)
        engine.flush()
        engine.commit(lambda: None)
        if choice > 0.97:
            engine.housekeeping()


@pytest.mark.parametrize("seed", range(3))
def test_a_standby_has_the_leaders_files(tmp_path: Path, seed: int) -> None:
    leader = Leader(tmp_path / "leader", seed)
    (tmp_path / "standby").mkdir()
    applier = Applier(tmp_path / "standby")
    for at in range(100):
        leader.work()
        if at % 10 == 0:
            applier.apply(leader.frame())
            assert contents(tmp_path / "standby") == contents(leader.root)
    leader.engine.close()
    applier.apply(leader.frame())
    applier.close()
    assert contents(tmp_path / "standby") == contents(leader.root)


def test_a_moment_is_continued_by_what_follows(tmp_path: Path) -> None:
    leader = Leader(tmp_path / "leader", 1)
    for _ in range(60):
        leader.work()
    leader.frame()
    moment = Moment(leader.root, leader.operations, "x")
    for _ in range(60):
        leader.work()
    standby = tmp_path / "standby"
    for path in ["", *moment.directories]:
        (standby / path).mkdir()
    for at, file in enumerate(moment.files):
        (standby / file.path).write_bytes(moment.path_of(at).read_bytes()[: file.size])
    moment.remove()
    assert not list((leader.root / OWN).iterdir())
    applier = Applier(standby)
    first, operations = leader.operations.take()
    assert first == moment.number + 1
    for frame in pack_frames(1, first, operations):
        applier.apply(frame)
    applier.close()
    assert contents(standby) == contents(leader.root)


class ChangingOperations:
    """Operations that change the directory just before the moment of a copy, while links are made already."""

    def __init__(self, change: Callable[[], object]) -> None:
        self._operations = Operations()
        self._change = change
        self.cut = self._operations.cut

    @property
    def lock(self) -> threading.RLock:
        self._change()
        return self._operations.lock


def test_a_moment_has_what_is_there_in_it_and_not_what_was_just_before(tmp_path: Path) -> None:
    for name in ("grows", "is replaced", "is renamed", "is removed", "gone/inner"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)

    def change() -> None:
        with (tmp_path / "grows").open("a") as file:
            file.write(" and more")
        (tmp_path / "new").write_text("replacement")
        (tmp_path / "new").replace(tmp_path / "is replaced")
        (tmp_path / "is renamed").rename(tmp_path / "renamed")
        (tmp_path / "is removed").unlink()
        shutil.rmtree(tmp_path / "gone")
        (tmp_path / "added").write_text("added")

    moment = Moment(tmp_path, cast("Operations", ChangingOperations(change)), "x")
    found = {each.path: moment.path_of(at).read_bytes()[: each.size] for at, each in enumerate(moment.files)}
    assert found == contents(tmp_path)
    assert set(found) == {"grows", "is replaced", "renamed", "added"}
    moment.remove()
    assert not list((tmp_path / OWN).iterdir())


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    applier = Applier(tmp_path)

    def apply(*operations: Operation) -> None:
        for frame in pack_frames(1, 1, operations):
            applier.apply(frame)

    apply(Operation(Kind.CREATE, "a"), Operation(Kind.APPEND, "a", 0, b"12"))
    for operation in (
        Operation(Kind.APPEND, "a", 1, b"x"),
        Operation(Kind.APPEND, "b", 0, b"x"),
        Operation(Kind.CREATE, "../c"),
        Operation(Kind.CREATE, "/etc/c"),
        Operation(Kind.UNLINK, "LOCK"),
        Operation(Kind.CREATE, "replication/node.json"),
        Operation(Kind.APPEND, "definitions.sqlite", 0, b"x"),
        Operation(Kind.RENAME, "a", 0, b"../a"),
        Operation(Kind.DEFINITIONS, "", 0, b"[[1]]"),
    ):
        with pytest.raises(OutOfStep):
            apply(operation)
    apply(Operation(Kind.DEFINITIONS, "", 0, pack_changes({("queue", '["/", "q"]'): "{}"})))
    applier.close()
    database = DefinitionsDatabase(tmp_path / "definitions.sqlite")
    assert [row.key for row in database.rows("queue")] == ['["/", "q"]']
    database.close()
    assert (tmp_path / "a").read_bytes() == b"12"


@pytest.mark.parametrize("doing", ["leaving", "entering"])
def test_a_copy_takes_its_place_also_if_that_was_interrupted(tmp_path: Path, doing: str) -> None:
    (tmp_path / "q").mkdir()
    (tmp_path / "q/old").write_text("old")
    (tmp_path / "LOCK").touch()
    (incoming(tmp_path) / "q").mkdir(parents=True)
    (incoming(tmp_path) / "q/new").write_text("new")
    if doing == "entering":
        (tmp_path / OWN / "old").mkdir()
        (tmp_path / "q").rename(tmp_path / OWN / "old/q")
    write_record(tmp_path, NodeRecord(doing, 4, 99))
    record = finish_switch(tmp_path, read_record(tmp_path))
    assert record == read_record(tmp_path) == NodeRecord("nothing", 4, 99)
    assert [each.name for each in (tmp_path / "q").iterdir()] == ["new"]
    assert (tmp_path / "LOCK").exists()


def test_paged_out_messages_that_a_start_removes_are_not_shipped(tmp_path: Path) -> None:
    assert SUFFIXES[Stream.SPILL] == SPILL_SUFFIX
    operations = Operations()
    files = RecordingFiles(str(tmp_path), operations)
    for name in ("a.spl", "a.seg"):
        handle = files.open(str(tmp_path / name), create=True)
        files.append(handle, b"x")
        files.fdatasync(handle)
        files.close(handle)
    files.rename(str(tmp_path / "a.spl"), str(tmp_path / "b.spl"))
    files.unlink(str(tmp_path / "b.spl"))
    (tmp_path / "c.spl").write_bytes(b"x")
    taken = operations.take()[1]
    assert {each.path for each in taken} == {"a.seg"}
    moment = Moment(tmp_path, operations, "b")
    assert [each.path for each in moment.files] == ["a.seg"]
    moment.remove()


def test_files_are_followed_when_they_or_their_directories_are_renamed(tmp_path: Path) -> None:
    operations = Operations()
    files = RecordingFiles(str(tmp_path), operations)
    files.make_directory(str(tmp_path / "d/inner"))
    handles = {name: files.open(str(tmp_path / name), create=True) for name in ("d/inner/f", "d/g", "dg")}
    again = files.open(str(tmp_path / "d/g"))
    files.rename(str(tmp_path / "d"), str(tmp_path / "e"))
    files.rename(str(tmp_path / "e/g"), str(tmp_path / "e/h"))
    # One that is replaced has no name any more.
    files.rename(str(tmp_path / "dg"), str(tmp_path / "e/h"))
    operations.take()
    for handle in (*handles.values(), again):
        files.append(handle, b"x")
    assert [each.path for each in operations.take()[1]] == ["e/inner/f", "e/h"]
    for handle in (*handles.values(), again):
        files.close(handle)
