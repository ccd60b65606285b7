"""A standby's side: connects to the leader again and again, gets what it needs, applies it, and acknowledges it."""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import os
import shutil
import sqlite3
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from leveret.broker.replication.applying import Applier, OutOfStep
from leveret.broker.replication.backlog import Backlog
from leveret.broker.replication.copying import Received, keep_aside
from leveret.broker.replication.frames import FrameError, unpack_frame
from leveret.broker.replication.lag import Lag
from leveret.broker.replication.link import Link, LinkError, Message, Refused, connect, decode
from leveret.broker.replication.node_record import (
    DIVERGED,
    OWN,
    NodeRecord,
    finish_switch,
    is_empty,
    store_id,
    write_hold,
    write_record,
)
from leveret.broker.replication.plan import Host, Plan
from leveret.broker.replication.register import State
from leveret.broker.replication.shipping import ACKNOWLEDGEMENT
from leveret.storage.clock import Clock
from leveret.storage.disk.files import DiskFiles
from leveret.storage.format import FORMAT_VERSION
from leveret.storage.snapshots.dead import latest_cut
from leveret.storage.snapshots.lease import remove_dead_snapshots

log = logging.getLogger("leveret.replication")

#: Seconds between lines of progress in the log.
_PROGRESS_SECONDS: Final = 10.0
#: Seconds between two messages with the node's use of resources.
_FIGURES_SECONDS: Final = 5.0


class Following:
    """The copy of one node. Used by the event loop of replication; its data directory must be locked.

    Args:
        plan: What the configuration says.
        record: What is known of the data directory.
        backlog: Keeps the frames that are applied, so that others can continue if this node leads.
        host: Takes backups.

    Attributes:
        record: What is on the disk of it.
        epoch: Epoch of the last operation that was applied; 0 if the copy cannot be continued.
        number: Number of the last operation that was applied.
        leading: The epoch of the leader, as the register said last; nothing of another one's link is applied.
        received, to_receive: Bytes of a copy.
        is_connected: Whether there is a leader to follow.
        behind: How far this copy was behind when the leader has told it last.
    """

    def __init__(self, plan: Plan, record: NodeRecord, backlog: Backlog, host: Host) -> None:
        self._plan = plan
        self._host = host
        self._root = plan.root
        self._backlog = backlog
        self._pool = ThreadPoolExecutor(1, "standby")
        self._applier: Applier | None = None
        self._link: Link | None = None
        self._reported = 0.0
        #: Whether the files that are here are what was written.
        self._is_sound = True
        self.record = record
        self.epoch, self.number = record.position
        self.leading = 0
        self.received = self.to_receive = 0
        self.is_connected = False
        self.behind = Lag()
        self._takes_backups = False
        #: Since when the next backup needs what is dropped, as the leader has told.
        self._hold = 0
        #: Number of the leader's last operation, as far as it has told.
        self._leaders = self.number
        backlog.clear(self.number)

    async def follow(self, host: str, port: int, epoch: int) -> None:
        """Follow a leader until the link is closed.

        Args:
            host: Its host.
            port: Its replication port.
            epoch: Its epoch.
        Raises:
            LinkError: The leader refuses this node, or sends what it should not.
            OSError, EOFError: The link is broken.
            FrameError: A frame is damaged; nothing of it has been applied.
            OutOfStep: The copy is none of this leader's; the next time it is made again.
            sqlite3.Error: Definitions cannot be written.
        """
        wish: Mapping[str, Any] = {
            "purpose": "follow",
            "node": self._plan.name,
            "store": store_id(self._root),
            "is_empty": is_empty(self._root),
            "epoch": self.epoch,
            "number": self.number,
            "address": self._plan.address,
            "is_observer": self._plan.is_observer,
            "backups": self._plan.backups,
        }
        self.leading = epoch
        link, told = await connect(host, port, self._plan.secret, wish, self._plan.client_tls, self._plan.dial)
        self._link = link
        telling: asyncio.Task[None] | None = None
        try:
            if int(told.get("epoch", 0)) != epoch:
                raise LinkError(f"it leads epoch {told.get('epoch')}, and the register says {epoch}")
            if int(told.get("format", 0)) > FORMAT_VERSION:
                raise LinkError(
                    f"it writes format {told['format']} of the data directory, and this version of Leveret knows"
                    f" {FORMAT_VERSION}; upgrade this node"
                )
            begun = decode(await link.expect(Message.HELLO))
            if "continue" in begun:
                if begun["continue"] != self.number:
                    raise LinkError(f"it goes on from operation {begun['continue']} after {self.number}")
                self._note("following", epoch)
            else:
                await self._receive_copy(link, epoch, int(begun.get("forced", 0)))
            self.is_connected = True
            self.epoch = epoch
            self._acknowledge(link)
            telling = asyncio.create_task(self._tell(link))
            await self._apply_frames(link, epoch)
        finally:
            if telling is not None:
                telling.cancel()
                await asyncio.gather(telling, return_exceptions=True)
            self.is_connected = False
            self._link = None
            link.close()
            # Before the directory is replaced, or a broker uses it.
            await self._take_backups("")

    async def _tell(self, link: Link) -> None:
        """Tell the leader of this node's use of resources, again and again, and clean up after readers."""
        loop = asyncio.get_running_loop()
        while True:
            link.send_json(Message.FIGURES, await loop.run_in_executor(None, self._plan.figures))
            await link.drain()
            # On a leader the engine does that.
            await loop.run_in_executor(None, remove_dead_snapshots, str(self._root))
            await asyncio.sleep(_FIGURES_SECONDS)

    def disconnect(self) -> bool:
        """Close the link; return whether there is one."""
        if self._link is None:
            return False
        self._link.close()
        return True

    async def _receive_copy(self, link: Link, epoch: int, forced: int) -> None:
        contents = await link.expect(Message.FILES)
        loop = asyncio.get_running_loop()
        await self.rest()
        self.epoch = 0
        received = await loop.run_in_executor(self._pool, Received, self._root, contents, self._is_sound)
        log.warning("receives a copy of %d bytes at operation %d", received.bytes, received.number)
        await received.receive(link, self._note_progress)
        self.number = received.number
        self._backlog.clear(self.number)
        await loop.run_in_executor(self._pool, self._switch, epoch, forced)
        self._is_sound = True
        log.warning("has a copy at operation %d", self.number)

    def _switch(self, epoch: int, forced: int) -> None:
        """Put the copy in the place of what was there.

        Args:
            epoch: The leader's epoch.
            forced: The last epoch that a node has begun by hand, which may not have had all that was confirmed.
        """
        before = self.record
        # Of a switch that was interrupted.
        shutil.rmtree(self._root / OWN / "old", ignore_errors=True)
        self._note("leaving", epoch)
        self.record = finish_switch(self._root, self.record)
        self._note("following", epoch)
        if before.doing == "leading" or 0 < before.epoch < forced:
            kept = keep_aside(self._root, before.epoch)
            log.warning(
                "this node %s epoch %d, and may have had operations that %s: %d files that differ are kept in %s",
                "led" if before.doing == "leading" else "followed",
                before.epoch,
                "nobody confirmed" if before.epoch >= forced else "the leader, which was promoted by hand, did not get",
                kept,
                self._root / DIVERGED / str(before.epoch),
            )
        shutil.rmtree(self._root / OWN / "old", ignore_errors=True)

    def _note_progress(self, received: int, to_receive: int) -> None:
        self.received, self.to_receive = received, to_receive
        now = asyncio.get_running_loop().time()
        if now - self._reported > _PROGRESS_SECONDS:
            self._reported = now
            log.info("%d of %d bytes of the copy are here", received, to_receive)

    async def _apply_frames(self, link: Link, epoch: int) -> None:
        loop = asyncio.get_running_loop()
        if self._applier is None:
            self._applier = Applier(self._root)
        applier = self._applier
        while True:
            kind, octets = await link.receive()
            if kind is Message.LAG:
                self._note_lag(octets)
                continue
            if kind is Message.BACKUP:
                await self._take_backups(str(decode(octets).get("turn", "")))
                continue
            if kind is not Message.FRAME:
                raise LinkError(f"message {kind.name} came instead of {Message.FRAME.name}")
            # Of one that is damaged nothing is applied, and the next link goes on where this one was.
            frame = unpack_frame(octets)
            if frame.first != self.number + 1:
                raise FrameError(f"it begins with operation {frame.first} after {self.number}")
            if frame.epoch > epoch:
                raise FrameError(f"it is of epoch {frame.epoch}, and {epoch} leads")
            if epoch != self.leading:
                # It was left in the buffer of a link that is closed.
                raise LinkError(f"it leads epoch {epoch}, and {self.leading} has begun")
            try:
                await loop.run_in_executor(self._pool, applier.apply, frame)
            except (OSError, OutOfStep, sqlite3.Error, FrameError) as error:
                # Part of it may be applied; and what a sync could not write is lost, whatever can still be read.
                self.epoch, self._is_sound = 0, not isinstance(error, OSError)
                raise
            self.number = frame.last
            self._leaders = max(self._leaders, frame.last)
            self._backlog.add(frame)
            self._acknowledge(link)

    def _note_lag(self, octets: bytes) -> None:
        try:
            told = json.loads(octets)
            self.behind = Lag(int(told["operations"]), int(told["bytes"]), float(told["seconds"]))
            self._leaders = int(told["operation"])
            hold = int(told.get("hold", 0))
        except (ValueError, TypeError, KeyError) as error:
            raise LinkError(f"what the leader says of its last operation is malformed: {error}") from error
        if hold and hold != self._hold and not self._takes_backups:
            # If this node leads next, what the last backup has not got must still be there.
            self._hold = hold
            asyncio.get_running_loop().run_in_executor(None, write_hold, self._root, hold)

    async def _take_backups(self, turn: str) -> None:
        """Take the backups of the cluster, or end that."""
        if turn or self._takes_backups:
            self._takes_backups = bool(turn)
            await self._host.take_backups(turn)

    def tell_backup(self, line: bytes) -> None:
        """Tell the leader what the program has said that takes the backups."""
        if self._link is not None and self._takes_backups:
            with suppress(OSError):
                self._link.send(Message.BACKUP, line)

    @property
    def lag(self) -> Lag:
        """How far this copy is behind, as far as the leader has told."""
        operations = max(0, self._leaders - self.number)
        return replace(self.behind, operations=operations) if operations else Lag()

    def missing(self) -> dict[str, Any]:
        """Return what this copy may not have, for JSON; blocks.

        The number of operations is that which the leader has told of; there may be more. The age is that of the last
        second that the copy has whole, None if it has none.

        Raises:
            OSError: The copy cannot be read.
        """
        store = store_id(self._root)
        cut = latest_cut(DiskFiles(), str(self._root / "events"), bytes.fromhex(store), []) if store else None
        age = None if cut is None else max(0, Clock().now() - cut.time) / 1_000_000
        return {"operations": max(0, self._leaders - self.number), "operation": self.number, "seconds": age}

    def _acknowledge(self, link: Link) -> None:
        link.send(Message.ACKNOWLEDGEMENT, ACKNOWLEDGEMENT.pack(self.number))

    def _note(self, doing: str, epoch: int) -> None:
        self.record = NodeRecord(doing, epoch, self.number)
        write_record(self._root, self.record)

    async def rest(self) -> None:
        """Close all files; the data directory can be used by a broker."""
        applier, self._applier = self._applier, None
        if applier is not None:
            await asyncio.get_running_loop().run_in_executor(self._pool, applier.close)

    async def close(self) -> None:
        """Close everything, and note where the copy stands."""
        self.disconnect()
        await self.rest()
        if self.record.doing == "following" and self.epoch:
            # The record must not say that there is more than what a loss of power leaves.
            await asyncio.get_running_loop().run_in_executor(self._pool, os.sync)
            self.record = replace(self.record, doing="nothing", epoch=self.epoch, number=self.number)
            write_record(self._root, self.record)
        self._pool.shutdown()

    async def abandon(self) -> None:
        """Close everything as the death of the process does."""
        self.disconnect()
        await self.rest()
        self._pool.shutdown()

    def retire(self) -> None:
        """End the thread: this node leads."""
        self._pool.shutdown()


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
        self.copy.leading = state.epoch
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
