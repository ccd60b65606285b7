"""The leader's choice of the node that takes the backups of the cluster.

An observer comes first, since nobody waits for it; then a standby that is in sync, since the leader would serve its
clients more slowly; the leader if there is no other. Among several, whoever takes them goes on, and otherwise the first
by name. A choice has a number, so that whoever has not heard of the next one is kept out of the backups.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from leveret.broker.replication.link import Link, Message, decode
from leveret.broker.replication.node_record import read_hold, write_hold
from leveret.storage.clock import Clock

if TYPE_CHECKING:
    from leveret.broker.replication.plan import Host
    from leveret.broker.replication.shipping import Shipping, Standby

log = logging.getLogger("leveret.replication")

#: Seconds between two looks at who could take backups.
_LOOK_SECONDS: Final = 0.5
#: Seconds for which the leader waits for others before it takes them itself.
_PATIENCE_SECONDS: Final = 10.0
#: Failures in a row after which another node takes them, and for how many seconds that one is left out.
_FAILURES: Final = 3
_REST_SECONDS: Final = 600.0


class BackupTurns:
    """Whose turn it is. Used by the event loop of replication.

    Args:
        name: Name of this node, which leads.
        root: The data directory.
        place: Where the backups are, as all nodes call it; "" if only the leader can take them.
        shipping: What it ships.
        host: Takes backups on this node, and shows what there is.
    """

    def __init__(self, name: str, root: Path, place: str, shipping: Shipping, host: Host) -> None:
        self._name = name
        self._root = root
        self._place = place
        self._shipping = shipping
        self._host = host
        self._loop = asyncio.get_running_loop()
        self._since = self._loop.time()
        self._number = 0
        #: Name of the node whose turn it is, and its link when it was told; "" before the first.
        self._taker = ""
        self._link: Link | None = None
        self._failures = 0
        #: Until when nodes are left out, as they could not take backups.
        self._resting: dict[str, float] = {}
        shipping.on_backup = self.note

    async def run(self) -> None:
        """Choose again and again, until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(_LOOK_SECONDS)

    async def look(self) -> None:
        """Choose, and tell the nodes if it is another one's turn."""
        chosen = self._choose()
        # A node that was away has been started again, perhaps.
        if chosen and (chosen, self._link_of(chosen)) != (self._taker, self._link):
            await self._give(chosen)

    async def end(self) -> None:
        """End the turn of this node."""
        self._shipping.on_backup = None
        if self._taker == self._name:
            await self._host.take_backups("")

    def _choose(self) -> str:
        """Return the name of the node whose turn it is; "" to wait."""
        able = [each for each in self._shipping.standbys.values() if self._is_able(each)]
        if able:
            self._since = self._loop.time()
            return min(able, key=lambda each: (not each.is_observer, each.name != self._taker, each.name)).name
        waits = self._place and self._taker != self._name and self._loop.time() - self._since < _PATIENCE_SECONDS
        return "" if waits else self._name

    def _is_able(self, each: Standby) -> bool:
        return (
            self._place != ""
            and each.backups == self._place
            and each.link is not None
            and each.doing == "frames"
            and (each.is_observer or each.name in self._shipping.state.in_sync)
            and self._resting.get(each.name, 0) <= self._loop.time()
        )

    async def _give(self, name: str) -> None:
        """Let a node take the backups."""
        await self._tell(self._taker, "")
        self._number += 1
        self._taker, self._link, self._failures = name, self._link_of(name), 0
        log.info("%s takes the backups", name)
        if name != self._name and not self._shipping.hold:
            # What the leader before has dropped may be in no backup yet. Without one, from before the first backup on,
            # or what is dropped until this node hears of it would be missing.
            self._shipping.hold = await self._loop.run_in_executor(None, read_hold, self._root)
            if not self._shipping.hold:
                self._shipping.hold = Clock().now()
                await self._loop.run_in_executor(None, write_hold, self._root, self._shipping.hold)
        await self._tell(name, f"{self._shipping.state.epoch}/{self._number}/{name}")

    def _link_of(self, name: str) -> Link | None:
        each = self._shipping.standbys.get(name)
        return None if each is None else each.link

    async def _tell(self, name: str, turn: str) -> None:
        if name == self._name:
            await self._host.take_backups(turn)
            return
        link = self._link_of(name)
        if link is not None:
            with suppress(OSError):
                link.send_json(Message.BACKUP, {"turn": turn})

    def note(self, name: str, octets: bytes) -> None:
        """Note what a node has said about the backups that it takes.

        Args:
            name: Its name.
            octets: A line that its program has written, or why that has ended.
        Raises:
            LinkError: It is malformed.
        """
        if name != self._taker:
            return
        told = decode(octets)
        self._count(told)
        since = told.get("hold")
        if isinstance(since, int) and since != self._shipping.hold:
            self._shipping.hold = since
            if name != self._name:
                self._loop.run_in_executor(None, write_hold, self._root, since)
        self._host.note_backup(name, octets)

    def _count(self, told: Mapping[str, Any]) -> None:
        """Count failures; choose another node after some."""
        if told.get("time"):
            self._failures = 0
        self._failures += "error" in told
        if self._failures >= _FAILURES and self._taker != self._name:
            log.error("%s cannot take backups: %s", self._taker, told.get("error"))
            self._resting[self._taker] = self._loop.time() + _REST_SECONDS
