"""Who leads: the register that all nodes of a cluster share.

A register has one value, the state, which is replaced by compare-and-set, and a claim of the leader that ends with its
lease. Everything that must be true at all times hangs on the state. The claim, and with it all clocks, only tells when
another node may try to lead.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol

import aiohttp

#: Version of the state as JSON.
_VERSION: Final = 1
#: Epochs that the state remembers.
_HISTORY: Final = 20


class RegisterError(Exception):
    """The register cannot be reached, or does not answer as it should. Whether a write has happened is not known."""


class NewerStateError(Exception):
    """The state was written by a newer version; the text says what to do."""


@dataclass(frozen=True, slots=True)
class State:
    """The state of a cluster.

    Attributes:
        epoch: Number of the leader's term; each leader has a higher one than all before.
        leader: Name of the node that leads, or has led last.
        in_sync: Names of the nodes that have everything that was confirmed; only these may lead.
        addresses: Host and port of the replication port, by name.
        store: ID of the data directory that all are copies of; "" while the first leader has not told it.
        history: Epochs that the leader's copy has followed, and the number of the last operation before each began;
            oldest first. An epoch is missing whose operations it never got.
        successor: Name of the node that a leader has handed over to; "" otherwise. Others let it claim first.
        forced: The last epoch that a node has begun by hand, perhaps without all that was confirmed; 0 if none was.
    """

    epoch: int
    leader: str
    in_sync: tuple[str, ...]
    addresses: Mapping[str, str] = field(default_factory=dict)
    store: str = ""
    history: tuple[tuple[int, int], ...] = ()
    successor: str = ""
    forced: int = 0

    def to_json(self) -> str:
        """Return it as JSON that a person can read."""
        return json.dumps(
            {
                "version": _VERSION,
                "epoch": self.epoch,
                "leader": self.leader,
                "in_sync": list(self.in_sync),
                "addresses": dict(self.addresses),
                "store": self.store,
                "history": [list(each) for each in self.history[-_HISTORY:]],
                "successor": self.successor,
                "forced": self.forced,
            }
        )

    def next(self, name: str, address: str, epoch: int, number: int) -> State:
        """Return the state in which another node leads.

        Args:
            name: Its name.
            address: Host and port of its replication port.
            epoch: The epoch that its copy has followed last; 0 if it is not known where its copy ends.
            number: Number of the last operation in its copy.
        """
        in_sync = self.in_sync
        if name not in (self.leader, self.successor):
            # The old leader may have operations that nobody else has.
            in_sync = tuple(each for each in in_sync if each != self.leader)
        term = self.epoch + 1
        return replace(
            self,
            epoch=term,
            leader=name,
            in_sync=in_sync,
            addresses={**self.addresses, name: address},
            history=(*(each for each in self.history if each[0] <= epoch), (term, number)),
            successor="",
        )

    def promoted(self, name: str, address: str, epoch: int, number: int) -> State:
        """Return the state in which a node leads by hand, whatever it has; see next(). The others need what it has."""
        state = self.next(name, address, epoch, number)
        return replace(state, in_sync=(name,), forced=state.epoch)

    def without(self, name: str) -> State:
        """Return the state in which a node is not known."""
        addresses = {each: address for each, address in self.addresses.items() if each != name}
        return replace(self, in_sync=tuple(each for each in self.in_sync if each != name), addresses=addresses)

    def may_continue(self, epoch: int, number: int) -> bool:
        """Return whether all operations up to `number` of a copy that followed `epoch` are the leader's, too."""
        known = any(began == epoch for began, _ in self.history)
        return known and all(number <= last for began, last in self.history if began > epoch)


def read_state(text: str) -> State:
    """Decode a state.

    Raises:
        RegisterError: It is malformed.
        NewerStateError: It is of a newer version.
    """
    try:
        found: dict[str, Any] = json.loads(text)
        if int(found.get("version", 1)) > _VERSION:
            raise NewerStateError(
                f"the register was written by a newer version of Leveret (state {found['version']}, this version"
                f" knows {_VERSION}); upgrade this node"
            )
        return State(
            int(found["epoch"]),
            str(found["leader"]),
            tuple(map(str, found["in_sync"])),
            {str(name): str(address) for name, address in found.get("addresses", {}).items()},
            str(found.get("store", "")),
            tuple((int(epoch), int(last)) for epoch, last in found.get("history", ())),
            str(found.get("successor", "")),
            int(found.get("forced", 0)),
        )
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise RegisterError(f"the state in the register is malformed: {error!r}") from error


@dataclass(frozen=True, slots=True)
class Reading:
    """What the register says.

    Attributes:
        state: The state; None before the first leader.
        revision: What write() compares.
        claimed_by: Name of the leader whose claim is valid; "" without one.
    """

    state: State | None
    revision: int
    claimed_by: str


class Register(Protocol):
    """The register of a cluster, as one node uses it. Every method may raise RegisterError."""

    async def read(self) -> Reading:
        """Return what it says."""

    async def write(self, state: State, revision: int) -> int | None:
        """Replace the state if its revision is this one; return the new revision, or None if it is another one."""

    async def claim(self, state: State, revision: int) -> int | None:
        """Replace the state as write() does and claim the leadership, if nobody else claims it."""

    async def renew(self) -> bool:
        """Extend the lease of the own claim; return whether it is still valid."""

    async def resign(self, state: State | None = None, revision: int = 0) -> int | None:
        """Give up the own claim, and with a state, replace that as write() does in the same step."""

    async def wait(self, seconds: float) -> None:
        """Wait until something may have changed, at most this long."""

    async def close(self) -> None:
        """Close all connections; the own claim ends with its lease."""


#: Seconds before a watch that has ended is begun again.
_WATCH_PAUSE: Final = 1.0
#: Seconds for one request at least: a register syncs each change.
_MIN_TIMEOUT: Final = 1.0


class HttpRegister:
    """A part of an implementation of Register. Used by one event loop.

    Args:
        lease: Seconds after which a claim that is not renewed ends.
        tls: Encrypts the connections; None for no encryption.
    """

    def __init__(self, lease: float, tls: ssl.SSLContext | None) -> None:
        self._tls = tls
        self._timeout = max(lease / 4, _MIN_TIMEOUT)
        self._session: aiohttp.ClientSession | None = None
        self._changed = asyncio.Event()
        self._watching: asyncio.Task[None] | None = None

    async def wait(self, seconds: float) -> None:
        """Wait until something may have changed, at most this long."""
        if self._watching is None:
            self._watching = asyncio.create_task(self._watch())
        with suppress(TimeoutError):
            await asyncio.wait_for(self._changed.wait(), seconds)
        self._changed.clear()

    async def close(self) -> None:
        """Close all connections."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
        if self._session is not None:
            await self._session.close()

    async def _watch(self) -> None:
        while True:
            await self._watch_once()
            await asyncio.sleep(_WATCH_PAUSE)

    async def _watch_once(self) -> None:
        """Watch the register until no server tells of changes any more."""
        raise NotImplementedError

    async def _note_changes(self, response: aiohttp.ClientResponse) -> None:
        """Set the event with whatever comes of a watch."""
        async for _ in response.content:
            self._changed.set()

    def _watch_timeout(self) -> aiohttp.ClientTimeout:
        return aiohttp.ClientTimeout(total=None, sock_connect=self._timeout)

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession()
        return self._session
