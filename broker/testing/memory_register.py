"""A register in memory, for the nodes of one process: of tests, and of a cluster that tests have."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from time import monotonic

from leveret.broker.replication.register import Reading, RegisterError, State, read_state


class MemoryHub:
    """What the registers of all nodes share. Used by any thread.

    Attributes:
        is_away: Whether it cannot be reached, from all nodes.
        cut_off: Names of nodes that cannot reach it.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.text: str | None = None
        self.revision = 0
        self.claimed_by = ""
        self.expires = 0.0
        self.is_away = False
        self.cut_off: set[str] = set()
        self._waiting: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    def change(self) -> None:
        """Wake all who wait."""
        with self.lock:
            waiting, self._waiting = self._waiting, []
        for loop, event in waiting:
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(event.set)

    def next_change(self) -> asyncio.Event:
        """Return what is set by the next change, for the running event loop."""
        event = asyncio.Event()
        with self.lock:
            self._waiting.append((asyncio.get_running_loop(), event))
        return event


class MemoryRegister:
    """Implementation of Register in memory. Used by one event loop.

    Args:
        hub: What all nodes share.
        node: Name of the node.
        lease: Seconds after which a claim that is not renewed ends.
    """

    def __init__(self, hub: MemoryHub, node: str, lease: float) -> None:
        self._hub = hub
        self._node = node
        self._lease = lease

    def _reach(self) -> MemoryHub:
        hub = self._hub
        if hub.is_away or self._node in hub.cut_off:
            raise RegisterError("the register cannot be reached")
        if hub.claimed_by and hub.expires <= monotonic():
            hub.claimed_by = ""
        return hub

    async def read(self) -> Reading:
        """Return what it says."""
        with self._hub.lock:
            hub = self._reach()
            return Reading(None if hub.text is None else read_state(hub.text), hub.revision, hub.claimed_by)

    async def write(self, state: State, revision: int) -> int | None:
        """Replace the state."""
        with self._hub.lock:
            return self._write(state, revision)

    def _write(self, state: State, revision: int) -> int | None:
        hub = self._reach()
        if hub.revision != revision:
            return None
        hub.text, hub.revision = state.to_json(), revision + 1
        hub.change()
        return hub.revision

    async def claim(self, state: State, revision: int) -> int | None:
        """Replace the state and claim the leadership."""
        with self._hub.lock:
            hub = self._reach()
            if hub.claimed_by not in ("", self._node):
                return None
            written = self._write(state, revision)
            if written is not None:
                hub.claimed_by, hub.expires = self._node, monotonic() + self._lease
            return written

    async def renew(self) -> bool:
        """Extend the lease."""
        with self._hub.lock:
            hub = self._reach()
            if hub.claimed_by != self._node:
                return False
            hub.expires = monotonic() + self._lease
            return True

    async def resign(self, state: State | None = None, revision: int = 0) -> int | None:
        """Give up the own claim."""
        with self._hub.lock:
            hub = self._reach()
            written = hub.revision if state is None else self._write(state, revision)
            if written is not None and hub.claimed_by == self._node:
                hub.claimed_by = ""
                hub.change()
            return written

    async def wait(self, seconds: float) -> None:
        """Wait until something may have changed."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._hub.next_change().wait(), seconds)

    async def close(self) -> None:
        """Do nothing."""
