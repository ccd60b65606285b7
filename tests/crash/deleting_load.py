"""Queues on a simulated disk whose messages are dead-lettered, and which are deleted at once."""

from __future__ import annotations

import json
import random
import threading
from functools import partial
from typing import Final

from leveret.broker.core.queues.classic_queue import ClassicQueue
from leveret.broker.core.queues.queue import Holder
from leveret.storage.definitions_database import Changes, DefinitionsDatabase
from leveret.storage.engine import EngineOptions, StorageEngine
from tests.crash.simulated_loads import SimulatedBroker, SimulatedLoad
from tests.support.queue_content import arguments, publish
from tests.support.queues import declare, settle
from tests.support.segment_stores import Clock
from tests.support.simulated_files import ROOT, SimulatedFiles

_DIRECTORY: Final = "/definitions"
_PATH: Final = f"{_DIRECTORY}/changes"
_LATER: Final = 1_800_000_000_000_000


class _Definitions(DefinitionsDatabase):
    """Definitions on the same disk as the messages: each batch is a line of a file."""

    def __init__(self, files: SimulatedFiles) -> None:
        self.changes = {}
        self._files = files
        files.make_directory(_DIRECTORY)
        self._handle = files.open(_PATH, create=True)
        for path in (_DIRECTORY, "/"):
            files.sync_directory(path)
        self._is_idle = threading.Event()
        self._is_idle.set()

    def take(self) -> Changes:
        """Return the changes of a batch."""
        self._is_idle.clear()
        return super().take()

    def wait(self) -> None:
        """Wait until the last batch is written."""
        self._is_idle.wait()

    def write(self, changes: Changes) -> None:
        """Append a line, and sync it."""
        lines = [[kind, key, value] for (kind, key), value in changes.items()]
        self._files.append(self._handle, json.dumps(lines).encode() + b"\n")
        self._files.fdatasync(self._handle)
        self._is_idle.set()


def _defined(files: SimulatedFiles) -> set[int]:
    """Return the numbers on disk of the queues that are defined."""
    found: dict[str, int] = {}
    for line in (files.read_all(_PATH) or b"").split(b"\n")[:-1]:
        try:
            changes = json.loads(line)
        except ValueError:
            # A batch that was being written.
            break
        for kind, key, value in changes:
            if kind == "queue" and value is None:
                found.pop(key, None)
            elif kind == "queue":
                found[key] = json.loads(value)["qid"]
    return set(found.values())


class DeletingLoad(SimulatedLoad):
    """Messages move out of queues that are deleted, and declared again: each that was confirmed is in one of them."""

    def __init__(self, files: SimulatedFiles, options: EngineOptions) -> None:
        super().__init__(options)
        self._definitions = _Definitions(files)
        self._broker = SimulatedBroker(files, options, 1000.0, self._definitions)
        self.engine = self._broker.engine
        self._letters = declare(self._broker.vhost, "letters")
        self._sources: dict[str, ClassicQueue] = {}
        #: What each source has by now.
        self._ready: dict[str, list[bytes]] = {}
        self._published: set[bytes] = set()
        self._gone: set[bytes] = set()

    def turn(self, rng: random.Random) -> None:
        for name in ("a", "b", "c"):
            if name not in self._sources:
                self._declare(name)
            self._use(name, self._sources[name], rng)
        self._acknowledge(rng)
        published = set(self._published)
        confirm = partial(self.confirmed.update, published)
        self._broker.stores.when_synced(lambda: self._broker.gate.when_written(confirm))
        self._broker.advance(0.01)
        self._maintain(rng)
        if rng.random() < 0.7:
            # The definitions are ahead of what the event loop knows.
            self._definitions.wait()

    def _declare(self, name: str) -> None:
        given = arguments(dead_letter_exchange="", dead_letter_routing_key="letters")
        self._sources[name] = declare(self._broker.vhost, name, arguments=given)
        self._ready[name] = []

    def _use(self, name: str, source: ClassicQueue, rng: random.Random) -> None:
        """Publish, or reject what has been confirmed by now and delete the queue at once."""
        if rng.random() < 0.6:
            for _ in range(rng.choice((1, 3))):
                body = f"{len(self._published)}:" + "x" * rng.randrange(200)
                assert publish(source, body, persistent=True) == 1
                self._published.add(body.encode())
                self._ready[name].append(body.encode())
            return
        holder = Holder(source)
        for _ in range(rng.choice((1, 3, 9))):
            entry = source.get(holder)
            if entry is not None:
                settle(holder, [entry], "reject")
                self._ready[name].remove(entry[1].body)
        self._broker.vhost.delete_queue(source)
        self._gone.update(self._ready.pop(name))
        del self._sources[name]

    def _acknowledge(self, rng: random.Random) -> None:
        holder = Holder(self._letters)
        for _ in range(rng.choice((0, 1, 2))):
            entry = self._letters.get(holder)
            if entry is not None:
                self._gone.add(entry[1].body)
                settle(holder, [entry], "acknowledge")

    def stop(self) -> None:
        """Write the definitions first, as the broker does."""
        self._broker.gate.close()
        super().stop()

    def missing(self, files: SimulatedFiles) -> set[bytes]:
        """Return what is in no queue that is defined: at a start the messages of others are deleted."""
        defined = _defined(files)
        engine = StorageEngine(ROOT, files=files, clock=Clock(_LATER), options=self._options)
        assert engine.report.failures == []
        stores = [store for qid, queue in engine.queues.items() if qid in defined for store in queue.stores.values()]
        found = {message.body for store in stores for _, message, _ in store.take(1 << 30, 1 << 40)[0]}
        assert found <= self._published
        return self.confirmed - self._gone - found
