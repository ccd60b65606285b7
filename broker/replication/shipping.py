"""The leader's side: ships operations to standbys, and lets go what waits for them.

What waits for copies is let go when every node of the in-sync set has acknowledged it. A node that does not acknowledge
in time leaves the set, in the register first. A node enters the set after everything waits for it already, so whoever
is in the register's set has all that was ever let go.
"""

from __future__ import annotations

import asyncio
import logging
import struct
import sys
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol

from leveret.broker.replication.backlog import Backlog
from leveret.broker.replication.copying import Moment, send_copy
from leveret.broker.replication.frames import Frame, FrameError, pack_frames
from leveret.broker.replication.lag import Lag, Marks
from leveret.broker.replication.link import Link, LinkError, Message, decode
from leveret.broker.replication.register import State
from leveret.storage.disk.recording import Operations

log = logging.getLogger("leveret.replication")

ACKNOWLEDGEMENT: Final = struct.Struct("<Q")
#: Seconds after which what nobody waits for is sent.
_IDLE_SECONDS: Final = 0.1
#: Seconds that a node that catches up may be behind before everything waits for it, and how many more after each
#: minute, so that one with a slow disk enters, too.
_NEAR_SECONDS: Final = 0.1
_NEAR_SECONDS_MORE: Final = 0.5
#: Seconds after which who waits looks whether that is in vain.
_LOOK_SECONDS: Final = 0.02
#: Seconds between two messages that tell a node how far it is behind.
_LAG_SECONDS: Final = 1.0
#: Bytes of frames that are sent at once to a node that catches up.
_FRAMES_BYTES: Final = 64 << 10
#: As a number of an operation: all, as there is no copy to wait for.
_ALL: Final = sys.maxsize
#: Longest message from a node that follows, in bytes: it may list backups.
_ANSWER_MAX: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of replication.

    Attributes:
        timeout: Seconds without an acknowledgement, with something waiting, after which a node leaves the set.
        min_copies: Nodes, with the leader, that must have what is confirmed.
        sync_rate: Bytes per second at which a copy is sent; 0 for no limit.
        compression: Whether what goes to standbys is compressed, as what goes to observers is.
    """

    timeout: float
    min_copies: int
    sync_rate: int
    compression: bool = False


class Judge(Protocol):
    """What the leader asks of whoever talks to the register."""

    @property
    def may_confirm(self) -> bool:
        """Whether this node still leads for certain, or as far as its lease says."""

    @property
    def has_lost(self) -> bool:
        """Whether this node does not lead any more."""

    async def change(self, change: Callable[[State], State]) -> bool:
        """Change the register's state; return whether it is changed. If not, this node does not lead any more."""


@dataclass(slots=True, eq=False)
class Standby:
    """A node that follows.

    Attributes:
        name: Its name.
        link: Its connection; None while it has none.
        acknowledged: Number of the last operation that it has on disk.
        doing: `frames`, `copy`, or `away`.
        sent, to_send: Bytes of the copy.
        is_observer: Whether nobody waits for it, and it never enters the in-sync set.
        backups: Where it can take backups; "" if it cannot.
        is_known: Whether it has told where its copy ends since this node leads.
        figures: What it has told of its use of resources.
    """

    name: str
    link: Link | None = None
    acknowledged: int = 0
    doing: str = "away"
    sent: int = 0
    to_send: int = 0
    is_observer: bool = False
    is_known: bool = False
    backups: str = ""
    figures: Mapping[str, Any] = field(default_factory=dict)


class _Feed:
    """What one node has been sent.

    Attributes:
        link: Its connection.
        number: Number of the last operation that was sent.
        is_packed: Whether frames are compressed.
        has_more: Is set when there are frames that ship() has not sent.
    """

    __slots__ = ("has_more", "is_packed", "link", "number")

    def __init__(self, link: Link, number: int, is_packed: bool) -> None:
        self.link = link
        self.number = number
        self.is_packed = is_packed
        self.has_more = asyncio.Event()


class Shipping:
    """Ships what one leader records in one epoch. Used by the event loop of replication, but for when_copied().

    Args:
        name: Name of this node.
        root: The data directory.
        epoch: The epoch.
        operations: What is recorded.
        backlog: The last frames.
        state: The register's state.
        judge: Talks to the register.
        limits: Limits.
        on_enough: Called when there are enough copies, or not any more.

    Attributes:
        on_backup: Called with the name of a node, and what it says about the backups that it takes.
        hold: Since when nodes keep what they drop for the next backup, in microseconds since 1970; 0 if they need not.
    """

    def __init__(
        self,
        name: str,
        root: Path,
        epoch: int,
        operations: Operations,
        backlog: Backlog,
        state: State,
        judge: Judge,
        limits: Limits,
        on_enough: Callable[[bool], None],
    ) -> None:
        self._name = name
        self._root = root
        self._epoch = epoch
        self._operations = operations
        self._backlog = backlog
        self._judge = judge
        self._limits = limits
        self._on_enough = on_enough
        self._loop = asyncio.get_running_loop()
        self.state = state
        self.standbys: dict[str, Standby] = {each: Standby(each) for each in state.in_sync if each != name}
        #: Nodes that are about to enter the set; everything waits for them, too.
        self._entering: set[str] = set()
        #: Those among them that the register may know already; whether it does is not known before it has answered.
        self._pledged: set[str] = set()
        self._leaving: set[str] = set()
        #: What waits: number, time, and what is called.
        self._waiting: deque[tuple[int, float, Callable[[], None]]] = deque()
        #: Number of the last operation that all copies had when that was looked at last.
        self._copied = _ALL
        self._has_enough: bool | None = None
        self._is_closed = False
        #: Nodes that have been sent everything.
        self._feeds: set[_Feed] = set()
        self._tasks: set[asyncio.Task[object]] = set()
        self._copies = 0
        self.on_backup: Callable[[str, bytes], None] | None = None
        self.hold = 0
        self._marks = Marks(backlog.last, backlog.total, self._loop.time())
        self._spawn(self._tick())

    @property
    def operation(self) -> int:
        """Number of the last operation."""
        return self._operations.number

    def lag_of(self, each: Standby) -> Lag:
        """Return how far a node is behind. Any thread."""
        return self._marks.lag(each.acknowledged, self._loop.time())

    def is_entering(self, name: str) -> bool:
        """Whether everything waits for a node that the register does not know yet."""
        return name in self._entering

    # --- what waits for copies; the broker's threads ------------------------------------------------------------------

    def when_copied(self, callback: Callable[[], None]) -> None:
        """Call back, in the thread of replication, when all that is synced by now is on all copies. Any thread.

        What was recorded after the last sync belongs to the next one. The sync has been shipped when it began; so this
        thread is woken only if all copies have it already.
        """
        number = self._operations.awaited
        self._waiting.append((number, self._loop.time(), callback))
        # If _release() has not seen what was just appended, it has set this before.
        if number <= self._copied:
            self._loop.call_soon_threadsafe(self._release)

    def wait(self, seconds: float) -> bool:
        """Wait until all that is recorded by now is on all copies, at the end: no client is connected any more.

        What still waits then is let go in any case, unless another node leads.

        Args:
            seconds: How long.
        Returns:
            Whether the copies have it.
        """
        copied = threading.Event()
        self._loop.call_soon_threadsafe(self._await, self._operations.number, copied.set)
        left = min(seconds, 2 * self._limits.timeout) if self._has_enough else 0
        while not copied.wait(_LOOK_SECONDS):
            if self._is_closed or self._judge.has_lost:
                return False
            left -= _LOOK_SECONDS
            if left < 0:
                self._loop.call_soon_threadsafe(self._let_all_go)
                copied.wait(1)
                return False
        return True

    def _let_all_go(self) -> None:
        while self._waiting and not self._judge.has_lost:
            self._waiting.popleft()[2]()

    def _await(self, number: int, callback: Callable[[], None]) -> None:
        self._waiting.append((number, self._loop.time(), callback))
        self.ship()
        self._release()

    # --- shipping -----------------------------------------------------------------------------------------------------

    def ship(self) -> None:
        """Make frames of what has been recorded since the last call."""
        first, operations = self._operations.take()
        while operations:
            for frame in pack_frames(self._epoch, first, operations):
                self._backlog.add(frame)
                if self._feeds:
                    self._feed(frame)
            first, operations = self._operations.take()

    def _feed(self, frame: Frame) -> None:
        """Send a frame to those who have been sent everything before, as far as their links have room."""
        for feed in [*self._feeds]:
            if feed.is_packed or feed.link.is_full:
                self._feeds.discard(feed)
                feed.has_more.set()
            else:
                feed.link.send(Message.FRAME, frame.octets)
                feed.number = frame.last

    async def _tick(self) -> None:
        """Ship what nobody waits for, and drop who does not acknowledge."""
        while True:
            await asyncio.sleep(min(_IDLE_SECONDS, self._limits.timeout / 4))
            self.ship()
            self._marks.note(self._backlog.last, self._backlog.total, self._loop.time())
            self._release()
            if not self._waiting:
                continue
            number, since, _ = self._waiting[0]
            if self._loop.time() - since < self._limits.timeout:
                continue
            for each in [*self.standbys.values()]:
                if each.acknowledged < number:
                    if each.name in self.state.in_sync and each.name not in self._leaving:
                        self._spawn(self.drop(each.name, f"it has not acknowledged for {self._limits.timeout:g} s"))
                    self._entering.discard(each.name)

    def _release(self) -> None:
        """Let go what all copies have."""
        enough = len(self.state.in_sync) >= self._limits.min_copies
        if enough is not self._has_enough:
            self._has_enough = enough
            self._on_enough(enough)
        limit = _ALL
        for name, each in self.standbys.items():
            if each.acknowledged < limit and (
                name in self.state.in_sync or name in self._entering or name in self._pledged
            ):
                limit = each.acknowledged
        self._copied = limit
        if not self._waiting or not enough or self._is_closed or not self._judge.may_confirm:
            return
        waiting = self._waiting
        while waiting and waiting[0][0] <= limit:
            waiting.popleft()[2]()

    async def drop(self, name: str, reason: str) -> bool:
        """Take a node out of the in-sync set; return whether it is out."""
        self._leaving.add(name)
        try:
            log.warning("%s leaves the in-sync set: %s", name, reason)
            done = await self._change(lambda state: replace(state, in_sync=_without(state.in_sync, name)))
        finally:
            self._leaving.discard(name)
        self._release()
        return done

    async def _change(self, change: Callable[[State], State]) -> bool:
        return not self._is_closed and await self._judge.change(change)

    def note_state(self, state: State) -> None:
        """Take over the register's state, which this node has changed."""
        self.state = state
        for name in state.in_sync:
            if name != self._name:
                self.standbys.setdefault(name, Standby(name))
        self._release()

    # --- standbys -----------------------------------------------------------------------------------------------------

    def refusal(self, name: str, store: str, is_empty: bool) -> str:
        """Return why a node may not follow; "" if it may.

        Args:
            name: Its name.
            store: ID of its data directory.
            is_empty: Whether that is empty.
        """
        if name == self._name or (name in self.standbys and self.standbys[name].link is not None):
            return f"another node is called {name}; set replication.node to another name"
        if not self.state.store:
            return "the leader is starting"
        if not is_empty and store != self.state.store:
            return (
                f"its data directory is another broker's ({store or 'unknown'}, the cluster's is {self.state.store});"
                " move it away to follow with an empty one"
            )
        return ""

    async def serve(self, link: Link, wish: Mapping[str, Any]) -> None:
        """Serve a node that follows until its link is closed.

        Args:
            link: Its link, after the handshake.
            wish: What it has told: its name (`node`), the epoch that its copy followed last, 0 if that cannot be
                continued, the number of the last operation in it, the address of its replication port, whether it
                is an observer (`is_observer`), and where it can take backups (`backups`).
        """
        name, epoch, number, address = str(wish["node"]), int(wish["epoch"]), int(wish["number"]), str(wish["address"])
        each = self.standbys.setdefault(name, Standby(name))
        each.link, each.acknowledged, each.is_observer = link, 0, bool(wish.get("is_observer"))
        each.backups = str(wish.get("backups", ""))
        try:
            if each.is_observer and name in self.state.in_sync and not await self.drop(name, "it is an observer now"):
                raise LinkError("this node does not lead any more")
            self.ship()
            if self._can_continue(epoch, number):
                link.send_json(Message.HELLO, {"epoch": self._epoch, "continue": number})
            else:
                number = await self._copy(link, each)
            each.acknowledged, each.doing, each.is_known = number, "frames", True
            log.info("%s follows from operation %d", name, number)
            tasks = [
                asyncio.create_task(work)
                for work in (
                    self._send_frames(_Feed(link, number, self._packs(each))),
                    self._receive(link, each, address),
                    self._tell_lag(link, each),
                )
            ]
            try:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                for task in tasks:
                    if task.done():
                        task.result()
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
        except (OSError, EOFError, LinkError, FrameError) as error:
            log.warning("the link to %s is closed: %s", name, str(error) or type(error).__name__)
        finally:
            link.close()
            each.link, each.doing = None, "away"
            self._entering.discard(name)
            self._release()

    def _can_continue(self, epoch: int, number: int) -> bool:
        known = self._backlog.first - 1 <= number <= self._backlog.last
        return epoch > 0 and known and self.state.may_continue(epoch, number)

    async def _copy(self, link: Link, each: Standby) -> int:
        """Send a copy of a moment; return the number of its last operation."""
        each.doing = "copy"
        if each.name in self.state.in_sync and not await self.drop(each.name, "it needs a copy"):
            raise LinkError("this node does not lead any more")
        link.send_json(Message.HELLO, {"epoch": self._epoch, "forced": self.state.forced})
        self._copies += 1
        make = partial(Moment, self._root, self._operations, f"{each.name}-{self._copies}")
        moment = await self._loop.run_in_executor(None, make)
        try:
            log.info("%s gets a copy of %d files at operation %d", each.name, len(moment.files), moment.number)
            await send_copy(link, moment, self._pace(), partial(_note_progress, each), self._packs(each))
        finally:
            await self._loop.run_in_executor(None, moment.remove)
        return moment.number

    def _packs(self, each: Standby) -> bool:
        """Whether what goes to a node is compressed; observers may be at another site."""
        return each.is_observer or self._limits.compression

    def _pace(self) -> Callable[[int], Awaitable[None]]:
        """Return what waits as long as `replication.sync_rate` asks."""
        rate, begun, sent = self._limits.sync_rate, self._loop.time(), 0

        async def wait(octets: int) -> None:
            nonlocal sent
            sent += octets
            if rate:
                ahead = sent / rate - (self._loop.time() - begun)
                if ahead > 0:
                    await asyncio.sleep(ahead)

        return wait

    async def _send_frames(self, feed: _Feed) -> None:
        """Send frames; once a node has been sent all, ship() sends it the next ones without waking this."""
        link = feed.link
        try:
            while True:
                while feed.number < self._backlog.last:
                    frames = self._next_frames(feed.number)
                    if feed.is_packed:
                        for each in frames:
                            await link.send_packed(Message.FRAME, each.octets)
                    else:
                        link.send_all(Message.FRAME, [each.octets for each in frames])
                    feed.number = frames[-1].last
                    await link.drain()
                    # While there is room, drain() lets nobody else run, and confirms are let go in this loop.
                    await asyncio.sleep(0)
                feed.has_more.clear()
                self._feeds.add(feed)
                await feed.has_more.wait()
        finally:
            self._feeds.discard(feed)

    def _next_frames(self, number: int) -> list[Frame]:
        """Return some of the frames after an operation, which is not the last one."""
        found: list[Frame] = []
        size = 0
        while number < self._backlog.last and size < _FRAMES_BYTES:
            frame = self._backlog.after(number)
            if frame is None:
                raise LinkError("it is too far behind for replication.backlog")
            found.append(frame)
            size += len(frame.octets)
            number = frame.last
        return found

    async def _tell_lag(self, link: Link, each: Standby) -> None:
        """Tell a node, once a second, how far it is behind: it may be asked for that when this node is gone."""
        while True:
            told = {"operation": self._backlog.last, "hold": self.hold, **asdict(self.lag_of(each))}
            link.send_json(Message.LAG, told)
            await link.drain()
            await asyncio.sleep(_LAG_SECONDS)

    async def _receive(self, link: Link, each: Standby, address: str) -> None:
        entering: asyncio.Task[object] | None = None
        begun = self._loop.time()
        while True:
            kind, octets = await link.receive(_ANSWER_MAX)
            if kind is Message.FIGURES:
                each.figures = decode(octets)
                continue
            if kind is Message.BACKUP:
                if self.on_backup is not None:
                    self.on_backup(each.name, octets)
                continue
            if kind is not Message.ACKNOWLEDGEMENT or len(octets) != ACKNOWLEDGEMENT.size:
                raise LinkError(f"message {kind.name} of {len(octets)} bytes came instead of an acknowledgement")
            (number,) = ACKNOWLEDGEMENT.unpack(octets)
            if not each.acknowledged <= number <= self._backlog.last:
                raise LinkError(f"it acknowledges operation {number} after {each.acknowledged}")
            each.acknowledged = number
            if each.is_observer:
                continue
            if each.name in self.state.in_sync or each.name in self._entering:
                self._release()
            elif (entering is None or entering.done()) and self._is_near(each, begun):
                entering = self._spawn(self._enter(each, link, address))

    def _is_near(self, each: Standby, begun: float) -> bool:
        """Whether a node that gets frames since a time has nearly caught up, so that nobody waits long for it."""
        near = _NEAR_SECONDS + _NEAR_SECONDS_MORE * (self._loop.time() - begun) / 60
        return self.lag_of(each).seconds < min(near, self._limits.timeout)

    async def _enter(self, each: Standby, link: Link, address: str) -> None:
        """Let a node that has caught up enter the in-sync set."""
        self._entering.add(each.name)
        try:
            self.ship()
            mark, deadline = self._backlog.last, self._loop.time() + self._limits.timeout
            while each.acknowledged < mark:
                if self._loop.time() > deadline or each.link is not link or each.name not in self._entering:
                    return
                await asyncio.sleep(0.005)
            # From here on everything waits for it, also if its link is closed, until the register has answered.
            self._pledged.add(each.name)
            entered = await self._change(
                lambda state: replace(
                    state,
                    in_sync=(*_without(state.in_sync, each.name), each.name),
                    addresses={**state.addresses, each.name: address},
                )
            )
            if entered:
                log.warning("%s enters the in-sync set", each.name)
        finally:
            self._entering.discard(each.name)
            self._pledged.discard(each.name)
            self._release()

    def _spawn(self, work: Coroutine[Any, Any, object]) -> asyncio.Task[object]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # --- the end ------------------------------------------------------------------------------------------------------

    def choose_successor(self, wanted: str = "") -> str:
        """Return a node of the in-sync set that has everything; "" if there is none."""
        for name, each in self.standbys.items():
            has_all = each.link is not None and each.acknowledged == self._operations.number
            if has_all and name in self.state.in_sync and wanted in ("", name):
                return name
        return ""

    async def close(self) -> None:
        """Let nothing go any more, and close all links."""
        self._is_closed = True
        self._waiting.clear()
        for each in self.standbys.values():
            if each.link is not None:
                each.link.close()
        tasks = [*self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _without(names: tuple[str, ...], name: str) -> tuple[str, ...]:
    return tuple(each for each in names if each != name)


def _note_progress(each: Standby, sent: int, to_send: int) -> None:
    each.sent, each.to_send = sent, to_send
