"""A node's leadership in one epoch, as the register has it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Final

from leveret.broker.replication.register import Register, RegisterError, State

log = logging.getLogger("leveret.replication")

#: Seconds between attempts to reach the register.
_RETRY_SECONDS: Final = 0.25


class Term:
    """The leadership of a node, until it is lost or given up; implements Judge. Used by the event loop of replication.

    Args:
        register: The register, in which the node has claimed the leadership.
        name: Name of the node.
        lease: Seconds for which a claim lasts.
        state: The state that it has claimed with.
        revision: Its revision.
        asked: Time of the event loop at which it has asked for the claim.

    Attributes:
        state: The register's state.
        lost: Why this node does not lead any more; "" while it does.
        has_ended: Is set when it is lost.
        on_state: Called with each new state.
    """

    def __init__(self, register: Register, name: str, lease: float, state: State, revision: int, asked: float) -> None:
        self._register = register
        self._name = name
        self._lease = lease
        self._revision = revision
        self._valid_until = asked + lease
        self._loop = asyncio.get_running_loop()
        #: One change at a time.
        self._changing = asyncio.Lock()
        self._is_over = False
        self.state = state
        self.lost = ""
        self.has_ended = asyncio.Event()
        self.on_state: Callable[[State], None] = lambda state: None

    @property
    def may_confirm(self) -> bool:
        """Whether the lease cannot have run out, and nobody else leads."""
        return not self.lost and self._loop.time() < self._valid_until

    @property
    def has_lost(self) -> bool:
        """Whether this node does not lead any more."""
        return bool(self.lost)

    async def change(self, change: Callable[[State], State]) -> bool:
        """Change the register's state; see Judge."""
        async with self._changing:
            while not self.lost and not self._is_over:
                try:
                    wanted = change(self.state)
                    revision = await self._register.write(wanted, self._revision)
                    if revision is not None:
                        self._note(wanted, revision)
                        return True
                    await self.look()
                except RegisterError:
                    # Whether it was written is not known.
                    await asyncio.sleep(_RETRY_SECONDS)
                    with suppress(RegisterError):
                        await self.look()
            return False

    async def look(self) -> None:
        """Read the register; note if this node does not lead any more.

        Raises:
            RegisterError: It cannot be read.
        """
        reading = await self._register.read()
        state = reading.state
        if state is None or state.epoch != self.state.epoch or state.leader != self._name:
            who = "nobody" if state is None else state.leader
            self._lose(f"the register says that {who} leads epoch {0 if state is None else state.epoch}")
        elif reading.claimed_by not in ("", self._name):
            self._lose(f"{reading.claimed_by} has claimed the leadership")
        elif reading.revision != self._revision:
            self._note(state, reading.revision)

    def _note(self, state: State, revision: int) -> None:
        self.state, self._revision = state, revision
        self.on_state(state)

    def _lose(self, reason: str) -> None:
        self.lost = self.lost or reason
        self.has_ended.set()

    async def keep(self) -> None:
        """Renew the lease, until cancelled; claim again what has run out while nobody else has claimed it."""
        while True:
            await asyncio.sleep(self._lease / 4)
            try:
                if not self.may_confirm:
                    # Renewals that arrive, and whose answers do not, would keep others from leading.
                    await self.look()
                asked = self._loop.time()
                if not await self._register.renew():
                    async with self._changing:
                        await self.look()
                        if self.lost:
                            return
                        revision = await self._register.claim(self.state, self._revision)
                        if revision is None:
                            continue
                        self._revision = revision
                self._valid_until = asked + self._lease
            except RegisterError as error:
                log.error("the lease cannot be renewed: %s", error)

    async def resign(self, successor: str, leaves: bool) -> None:
        """Give the leadership up.

        Args:
            successor: Name of the node that is to lead; "" if none has everything.
            leaves: Whether this node leaves the in-sync set, if there is a successor.
        """
        # A change that waits for a register that is away is given up.
        self._is_over = True
        async with self._changing:
            in_sync = self.state.in_sync
            if successor and leaves:
                in_sync = tuple(each for each in in_sync if each != self._name)
            state = replace(self.state, successor=successor, in_sync=in_sync)
            try:
                if await self._register.resign(state, self._revision) is None:
                    log.error("the leadership could not be handed over; it ends with its lease")
            except RegisterError as error:
                log.error("the leadership could not be handed over, and ends with its lease: %s", error)

    def close(self) -> None:
        """Change nothing any more."""
        self._is_over = True
