"""When a node claims the leadership, and how long it has it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from math import inf
from typing import Final

from leveret.broker.replication.following import Following
from leveret.broker.replication.link import LinkError, connect
from leveret.broker.replication.node_record import store_id
from leveret.broker.replication.plan import Plan, ReplicationError
from leveret.broker.replication.register import Reading, Register, RegisterError, State

log = logging.getLogger("leveret.replication")

#: Seconds for another node to say where its copy ends, and to lead if it has more.
_POSITION_SECONDS: Final = 0.3
_BEHIND_SECONDS: Final = 1.0
#: Leases after which a claim of this node's name that is not its own is another node's.
_NAMESAKE_LEASES: Final = 3


class Election:
    """Decides whether a node claims the leadership. Used by the event loop of replication.

    Args:
        plan: What the configuration says.
        register: The register.
    """

    def __init__(self, plan: Plan, register: Register) -> None:
        self._plan = plan
        self._register = register
        self._namesake_since = 0.0
        #: The epoch after which others may claim first, and since when.
        self._waiting = (0, 0.0)
        self._outage_ended = -inf

    def note_outage(self) -> None:
        """Note that the register could not be reached: the leader could not renew its lease either."""
        self._outage_ended = asyncio.get_running_loop().time()

    async def should_claim(self, reading: Reading, copy: Following) -> bool:
        """Return whether this node should claim the leadership now.

        Args:
            reading: What the register says.
            copy: This node's copy.
        Raises:
            ReplicationError: Another node has this one's name, and leads.
        """
        self._check_namesake(reading)
        if reading.claimed_by not in ("", self._plan.name):
            self._waiting = (0, 0.0)
        return self._may_claim(reading) and not await self._lets_others_claim(reading, copy)

    def _is_own_claim(self, reading: Reading) -> bool:
        """Return whether the claim is that of this node's last run: its port is ours now."""
        name, state = self._plan.name, reading.state
        return reading.claimed_by == name and state is not None and state.addresses.get(name) == self._plan.address

    def _check_namesake(self, reading: Reading) -> None:
        if reading.claimed_by != self._plan.name or self._is_own_claim(reading):
            self._namesake_since = 0.0
            return
        now = asyncio.get_running_loop().time()
        self._namesake_since = self._namesake_since or now
        if now - self._namesake_since > _NAMESAKE_LEASES * self._plan.lease:
            where = "" if reading.state is None else reading.state.addresses.get(self._plan.name, "")
            raise ReplicationError(
                f"another node is called {self._plan.name} and leads at {where}; set replication.node to another name"
            )

    def _may_claim(self, reading: Reading) -> bool:
        plan, state = self._plan, reading.state
        if reading.claimed_by and not self._is_own_claim(reading):
            return False
        if state is None:
            return not plan.is_observer
        if plan.is_observer and state.leader != plan.name:
            # One that led was promoted by hand, and nobody else may have what it has.
            return False
        return plan.name in state.in_sync and state.store in ("", store_id(plan.root))

    async def _lets_others_claim(self, reading: Reading, copy: Following) -> bool:
        """Return whether others of the in-sync set should claim first, for a while.

        One has been chosen by the last leader; or this node does not know where its copy ends, after a crash, and all
        others would need new copies of it; or another has more operations, and would need a new copy; or the register
        was away, and the old leader may claim again.
        """
        name, state = self._plan.name, reading.state
        if state is None:
            return False
        is_unsure = not copy.epoch and {*state.in_sync} != {name}
        if is_unsure and reading.claimed_by == name:
            log.warning("lets another node lead: this one has ended uncleanly")
            await self._register.resign()
        now, patience = asyncio.get_running_loop().time(), self._plan.lease
        if state.leader != name and now - self._outage_ended < patience / 2:
            return True
        if not is_unsure and state.successor in ("", name):
            if state.successor == name or not await self._is_behind(state, copy):
                return False
            patience = _BEHIND_SECONDS
        if self._waiting[0] != state.epoch:
            self._waiting = state.epoch, now
        return now - self._waiting[1] < patience

    async def _is_behind(self, state: State, copy: Following) -> bool:
        """Ask the others of the in-sync set where their copies end; return whether one has more than this node."""
        others = [each for each in state.in_sync if each not in (self._plan.name, state.leader)]
        if not others:
            return False
        found = await asyncio.gather(*(self._ask_position(state.addresses.get(each, "")) for each in others))
        return max(found) > (copy.epoch, copy.number)

    async def _ask_position(self, address: str) -> tuple[int, int]:
        """Return the epoch and number at which a node's copy ends; zeros if it does not say at once."""
        plan, (host, _, port) = self._plan, address.rpartition(":")
        try:
            async with asyncio.timeout(_POSITION_SECONDS):
                wish = {"purpose": "position", "node": plan.name}
                link, told = await connect(host.strip("[]"), int(port), plan.secret, wish, plan.client_tls, plan.dial)
                link.close()
                return int(told["epoch"]), int(told["number"])
        except (OSError, EOFError, LinkError, ValueError, KeyError):
            return 0, 0


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
