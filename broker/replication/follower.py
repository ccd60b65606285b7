"""A node that does not lead: follows whoever does, with one copy."""

from __future__ import annotations

import asyncio
import errno
import logging
import sqlite3
from typing import Final

from leveret.broker.replication.backlog import Backlog
from leveret.broker.replication.following import Following
from leveret.broker.replication.frames import FrameError
from leveret.broker.replication.link import LinkError, Refused
from leveret.broker.replication.node_record import NodeRecord
from leveret.broker.replication.plan import Host, Plan
from leveret.broker.replication.register import State

log = logging.getLogger("leveret.replication")

#: Seconds between attempts to reach a leader.
_RETRY_SECONDS: Final = 0.25
#: The first pause and the longest while the disk is full; each failure doubles it.
_FULL_SECONDS: Final = 1.0
_FULL_SECONDS_MAX: Final = 30.0
#: Seconds within which what has begun with a leader is done, before that is looked at again.
_LOOK_SECONDS: Final = 0.05


class Follower:
    """Connects to a leader, again and again. Used by the event loop of replication; the data directory must be locked.

    Args:
        plan: What the configuration says.
        record: What is known of the data directory.
        backlog: Keeps the frames that are applied.
        host: Takes backups.

    Attributes:
        copy: The copy of this node.
    """

    def __init__(self, plan: Plan, record: NodeRecord, backlog: Backlog, host: Host) -> None:
        self.copy = Following(plan, record, backlog, host)
        self._task: asyncio.Task[None] | None = None
        #: Name, address and epoch of the leader.
        self._followed = ("", "", 0)

    async def follow(self, state: State) -> bool:
        """Follow the leader of a state; return whether it is another one than before."""
        followed = state.leader, state.addresses.get(state.leader, ""), state.epoch
        if followed == self._followed and self._task is not None:
            return False
        await self._stop()
        self._followed = followed
        self._task = asyncio.create_task(self._keep_following(*followed))
        return True

    async def _keep_following(self, leader: str, address: str, epoch: int) -> None:
        told, pause = "", _RETRY_SECONDS
        host, _, port = address.rpartition(":")
        while True:
            reason, is_full = f"the link to {leader} is closed", False
            try:
                await self.copy.follow(host.strip("[]"), int(port), epoch)
            except Refused as error:
                reason = f"{leader} refuses this node: {error}"
            except (LinkError, FrameError) as error:
                reason = f"the link to {leader} is closed: {error}"
            except Exception as error:  # noqa: BLE001 - the next attempt makes a copy
                is_full = _is_full(error)
                reason = f"cannot follow {leader}: {error!r}"
                if is_full:
                    reason = f"cannot follow {leader}: the disk is full"
                elif isinstance(error, OSError | EOFError):
                    reason = f"the link to {leader} is broken: {str(error) or type(error).__name__}"
            if self._followed != (leader, address, epoch):
                return
            if reason != told:
                log.warning("%s; trying again", reason)
            told = reason
            # Each attempt with a full disk may ask the leader for a whole copy.
            pause = min(max(2 * pause, _FULL_SECONDS), _FULL_SECONDS_MAX) if is_full else _RETRY_SECONDS
            await asyncio.sleep(pause)

    async def _stop(self) -> None:
        """End the connection to a leader; what has begun is done first."""
        task, self._task = self._task, None
        self._followed = ("", "", 0)
        if task is not None:
            while not task.done():
                if not self.copy.disconnect():
                    # It waits to connect again.
                    task.cancel()
                await asyncio.wait({task}, timeout=_LOOK_SECONDS)

    async def rest(self) -> None:
        """Follow nobody, and close all files: a broker can use the data directory."""
        await self._stop()
        await self.copy.rest()

    async def abandon(self) -> None:
        """Follow nobody, and leave the copy as the death of the process does."""
        await self._stop()
        await self.copy.abandon()

    async def close(self) -> None:
        """Follow nobody, and note where the copy stands."""
        await self._stop()
        await self.copy.close()


def _is_full(error: Exception) -> bool:
    """Return whether an error says that there is no space."""
    if isinstance(error, sqlite3.Error):
        return getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_FULL
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
