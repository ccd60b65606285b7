"""When a node should claim the leadership: never unless it may, and not while another one should."""

from __future__ import annotations

import asyncio
import logging
from math import inf
from typing import Final

from leveret.broker.replication.following import Following
from leveret.broker.replication.link import LinkError, connect
from leveret.broker.replication.node_record import store_id
from leveret.broker.replication.plan import Plan, ReplicationError
from leveret.broker.replication.register import Reading, Register, State

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
