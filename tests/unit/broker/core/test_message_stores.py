"""Assignment of directories to queues after a restart."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from leveret.broker.config.options import Settings
from leveret.broker.core.definitions_gate import DefinitionsGate
from leveret.broker.core.message_stores import MessageStores, WriteFailures, open_stores
from leveret.broker.core.resources.alarms import Alarms
from leveret.broker.core.scheduling.turn import Turn
from leveret.storage.backings import LevelBacking, QueueBacking, StoreRequest
from leveret.storage.engine import StorageEngine
from leveret.storage.message import Envelope, Message
from tests.support.manual_loop import ManualLoop
from tests.support.queues import ManualTimers
from tests.support.segment_stores import open_engine
from tests.support.simulated_files import SimulatedFiles

REQUEST = StoreRequest("/", "q", durable=True)


@pytest.fixture
def left() -> StorageEngine:
    """Data of a broker with one queue, which has the number 2 and one message."""
    files = SimulatedFiles()
    engine = open_engine(files)
    engine.create_queue(True, {"vhost": "/", "name": "other"})
    store = engine.store(engine.create_queue(True, {"vhost": "/", "name": "q"}))
    store.append([Message(Envelope(b"\x00\x01q", bytes(14), True), b"x")], 1)
    assert engine.close()
    return open_engine(files)


def opened(engine: StorageEngine, qid: int | None) -> QueueBacking:
    return MessageStores(engine, lambda: None, ManualLoop().call_later).open(REQUEST, qid)


def test_it_is_the_one_that_definitions_name(left: StorageEngine) -> None:
    assert opened(left, 2).store.ready_count == 1


@pytest.mark.parametrize("qid", [None, 1])
def test_older_definitions_find_it_by_its_name(left: StorageEngine, qid: int | None) -> None:
    del left.queues[1]
    backing = opened(left, qid)
    assert (backing.qid, backing.store.ready_count) == (2, 1)


@pytest.mark.parametrize("kind", [LevelBacking, QueueBacking])
@pytest.mark.parametrize("durable", [True, False])
def test_files_stay_until_the_definitions_on_disk_no_longer_name_them(kind: type[object], durable: bool) -> None:
    engine, written = open_engine(SimulatedFiles()), list[Callable[[], None]]()
    request = StoreRequest("/", "x", durable, kind="exchange")
    if kind is LevelBacking:
        LevelBacking(engine, request, None, written.append).delete()
    else:
        backing = QueueBacking(engine, request, None, lambda _: None, written.append)
        # One that is not durable has files once it is lazy.
        backing.set_lazy(True)
        backing.delete()
    assert (len(engine.queues), len(written)) == ((1, 1) if durable else (0, 0))
    for callback in written:
        callback()
    assert not engine.queues


def test_a_redeclared_queue_has_no_messages_of_its_predecessor(left: StorageEngine) -> None:
    """After a power failure the new definition is on disk, its directory is not, and the old one still exists."""
    backing = opened(left, 3)
    assert backing.qid != 2
    assert backing.store.ready_count == 0


def test_who_fails_after_a_sync_takes_no_other_with_it(left: StorageEngine, caplog: pytest.LogCaptureFixture) -> None:
    class Failing:
        """A waiter that fails at once."""

        def written(self, failures: WriteFailures) -> Callable[[], None] | None:
            raise ZeroDivisionError

    stores, done = MessageStores(left, lambda: None, ManualLoop().call_later), list[str]()
    stores.await_sync(Failing())
    stores.when_synced(partial(divmod, 1, 0))
    stores.when_synced(partial(done.append, "synced"))
    stores.when_settled(partial(divmod, 1, 0))
    stores.when_settled(partial(done.append, "settled"))
    stores.write()
    assert done == ["synced", "settled"]
    assert len(caplog.records) == 3


@pytest.mark.parametrize(
    ("lacks_descriptors", "said"), [(True, "no file descriptor (ulimit -n) is left"), (False, "until there is room")]
)
def test_the_alarm_says_why_it_is_set(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, lacks_descriptors: bool, said: str
) -> None:
    loop = ManualLoop()
    alarms, timers, turn = Alarms(), ManualTimers(loop), Turn(loop.call_soon)
    gate = DefinitionsGate(timers.real_call_later, alarms, turn.slice)
    stores = open_stores(Settings(data_dir=tmp_path), turn, timers, alarms, gate, loop.call_soon)
    stores.engine.disk.note_write(True, lacks_descriptors)
    assert alarms.any
    assert said in caplog.text
    stores.engine.disk.note_write(False)
    assert not alarms.any
    assert "disk alarm cleared" in caplog.text
    assert stores.close()
