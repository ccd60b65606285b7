from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from queue import Empty, Queue

import pytest

from leveret.storage.commit import CommitGroup, Committer
from tests.support.simulated_files import SimulatedFiles


class GatedFiles(SimulatedFiles):
    """A disk whose syncs wait until they are let through."""

    def __init__(self) -> None:
        super().__init__()
        self.started = threading.Event()
        self.gate = threading.Event()

    def fdatasync(self, handle: int) -> None:
        self.started.set()
        assert self.gate.wait(20)
        super().fdatasync(handle)


class Owner:
    """The thread that owns the stores: runs the callbacks that it is given, on request."""

    def __init__(self) -> None:
        self.calls: Queue[Callable[[], object]] = Queue()

    def serve(self) -> None:
        self.calls.get(timeout=120)()


@pytest.fixture
def files() -> GatedFiles:
    made = GatedFiles()
    made.make_directory("/d")
    return made


@pytest.fixture
def owner() -> Owner:
    return Owner()


@pytest.fixture
def errors() -> list[OSError]:
    return []


@pytest.fixture
def committer(files: GatedFiles, owner: Owner, errors: list[OSError]) -> Iterator[Committer]:
    made = Committer(files, owner.calls.put, errors.append)
    yield made
    files.gate.set()
    made.close()


def group_of(files: SimulatedFiles, done: Callable[[], None]) -> CommitGroup:
    group = CommitGroup()
    group.data[files.open("/d/f", create=True)] = None
    group.callbacks.append(done)
    return group


def test_a_callback_waits_for_the_sync(committer: Committer, files: GatedFiles, owner: Owner) -> None:
    done: list[int] = []
    committer.submit(group_of(files, lambda: done.append(files.syncs)))
    assert files.started.wait(20)
    assert owner.calls.empty()
    files.gate.set()
    owner.serve()
    assert done == [1]


def test_what_comes_up_meanwhile_is_one_group(committer: Committer, files: GatedFiles, owner: Owner) -> None:
    done: list[int] = []
    committer.submit(group_of(files, lambda: done.append(0)))
    assert files.started.wait(20)
    shared = files.open("/d/f")
    for number in (1, 2, 3):
        group = CommitGroup()
        group.data[shared] = None
        group.callbacks.append(lambda number=number: done.append(number))  # type: ignore[misc]
        committer.submit(group)
    files.gate.set()
    owner.serve()
    owner.serve()
    assert done == [0, 1, 2, 3]
    assert files.syncs == 2


def test_closing_commits_what_waits(committer: Committer, files: GatedFiles) -> None:
    done: list[int] = []
    files.gate.set()
    committer.submit(group_of(files, lambda: done.append(1)))
    assert committer.close()
    assert done == [1]


def test_a_sync_that_fails_is_told_once_and_nothing_is_promised_after_it(
    committer: Committer, files: GatedFiles, owner: Owner, errors: list[OSError]
) -> None:
    done: list[int] = []
    files.sync_fails = True
    committer.submit(group_of(files, lambda: done.append(1)))
    assert files.started.wait(20)
    committer.submit(group_of(files, lambda: done.append(2)))
    files.gate.set()
    owner.serve()
    files.sync_fails = False
    assert not committer.close()
    assert (done, len(errors)) == ([], 1)


def test_data_comes_first_and_files_move_last() -> None:
    steps: list[str] = []

    class NotedFiles(SimulatedFiles):
        def fdatasync(self, handle: int) -> None:
            steps.append(self._handles[handle][0])

        def sync_directory(self, path: str) -> None:
            steps.append(path)

    files = NotedFiles()
    files.make_directory("/d")
    group = CommitGroup()
    assert not group
    group.journals[files.open("/d/MANIFEST", create=True)] = None
    group.file_actions.append(lambda: steps.append("move"))
    group.data[files.open("/d/segment", create=True)] = None
    group.directories["/d"] = None
    group.callbacks.append(lambda: steps.append("tell"))
    assert group
    group.commit(files)
    assert steps == ["/d/segment", "/d", "/d/MANIFEST", "move", "tell"]


def test_a_file_that_is_gone_does_not_stop_the_rest() -> None:
    files = SimulatedFiles()
    done: list[int] = []
    group = CommitGroup()
    group.file_actions += [lambda: files.unlink("/d/none"), lambda: done.append(1)]
    group.commit(files)
    assert done == [1]


class Machines:
    """Other machines that have what is done when the test says so."""

    def __init__(self) -> None:
        self.waiting: Queue[Callable[[], None]] = Queue()

    def when_copied(self, callback: Callable[[], None]) -> None:
        self.waiting.put(callback)

    def wait(self, seconds: float) -> bool:
        while not self.waiting.empty():
            self.waiting.get()()
        return True


def test_a_callback_waits_for_copies_too(files: GatedFiles, owner: Owner) -> None:
    done: list[int] = []
    machines = Machines()
    committer = Committer(files, owner.calls.put, lambda error: None, copies=machines)
    files.gate.set()
    committer.submit(group_of(files, lambda: done.append(1)))
    copied = machines.waiting.get(timeout=120)
    assert (files.syncs, done, owner.calls.empty()) == (1, [], True)
    copied()
    owner.serve()
    assert done == [1]
    committer.submit(group_of(files, lambda: done.append(2)))
    assert committer.close()
    assert done == [1, 2]


def test_what_comes_while_a_group_waits_for_copies_is_one_group(files: GatedFiles, owner: Owner) -> None:
    done: list[int] = []
    machines = Machines()
    committer = Committer(files, owner.calls.put, lambda error: None, copies=machines, copies_pause=120)
    files.gate.set()
    committer.submit(group_of(files, lambda: done.append(1)))
    copied = machines.waiting.get(timeout=120)
    committer.submit(group_of(files, lambda: done.append(2)))
    with pytest.raises(Empty):
        machines.waiting.get(timeout=0.3)
    committer.submit(group_of(files, lambda: done.append(3)))
    copied()
    machines.waiting.get(timeout=120)()
    owner.serve()
    owner.serve()
    assert (done, machines.waiting.empty()) == ([1, 2, 3], True)
    # Who waits for a sync alone does not wait for copies.
    committer.submit(group_of(files, lambda: done.append(4)))
    machines.waiting.get(timeout=120)
    committer.submit(group_of(files, lambda: done.append(5)))
    assert committer.barrier()()
    assert committer.close()


def test_copies_do_not_cut_the_interval_between_syncs_short(files: GatedFiles, owner: Owner) -> None:
    machines = Machines()
    committer = Committer(files, owner.calls.put, lambda error: None, interval=120, copies=machines)
    files.gate.set()
    committer.submit(group_of(files, lambda: None))
    machines.waiting.get(timeout=120)()
    committer.submit(group_of(files, lambda: None))
    with pytest.raises(Empty):
        machines.waiting.get(timeout=0.3)
    assert committer.close()
