"""The message stores of all queues in a data directory: opens, writes, maintains and closes it."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path
from typing import Final, Protocol

from leveret.broker.config.options import Settings
from leveret.broker.core.definitions_gate import ALWAYS_OPEN, DefinitionsGate
from leveret.broker.core.resources.alarms import Alarms
from leveret.broker.core.resources.memory import available_memory
from leveret.broker.core.scheduling.timers import RealCallLater, RealTimer, Timers
from leveret.broker.core.scheduling.turn import Turn
from leveret.protocol.faults import ConnectionFault, ReplyCode
from leveret.storage.backings import Backing, LevelBacking, QueueBacking, StoreRequest
from leveret.storage.callbacks import call_each
from leveret.storage.commit import SyncMode
from leveret.storage.compiler_hints import mypyc_attr
from leveret.storage.directory.directory_format import DataDirectoryError
from leveret.storage.disk.files import DirectoryInUseError, DiskFiles, DiskSpace, FileCounts, UnreadableFileError
from leveret.storage.engine import EngineOptions, StorageEngine, StoredQueue

log = logging.getLogger("leveret.storage")

_HOUSEKEEPING_SECONDS: Final = 1.0
#: Bytes of disk space that a start without recovery needs at most.
_ROOM_TO_START: Final = 256 * 1024
#: Messages that a preload reads in one turn.
_PRELOAD_STEP: Final = 256
#: What error texts call a store that is not that of a queue or exchange.
_NAMES: Final = {"deduplication": "the values of exchange", "offsets": "the named consumers of stream"}


class DataDirectoryUnusableError(Exception):
    """The data directory cannot be used. The text has the reason and advice, in one line."""


def unusable_text(data_dir: Path, reason: str) -> str:
    """Return the error text for an unusable data directory, with advice.

    Args:
        data_dir: The directory.
        reason: Why it cannot be used. SQLite reports most failures on a full disk as I/O errors.
    """
    is_full = data_dir.is_dir() and shutil.disk_usage(data_dir).free < _ROOM_TO_START
    advice = "its disk is full, make room" if is_full else "choose another --data-dir"
    return f"cannot use the data directory {data_dir}: {reason}; {advice}"


class Backed(Protocol):
    """A queue, or an exchange with delayed messages, as far as its messages may have failed to be written."""

    @property
    def stored(self) -> Backing:
        """Where its messages are kept."""


@mypyc_attr(allow_interpreted_subclasses=True)
class WriteFailures:
    """Which messages of a turn could not be written.

    Args:
        stores: The stores that could not be written.

    Attributes:
        any: Whether there are such messages. Normally not, so that queues need not be checked one by one.
    """

    __slots__ = ("_stores", "any")

    def __init__(self, stores: Collection[object] = ()) -> None:
        self._stores = stores
        self.any: Final = bool(stores)

    def concern(self, queues: Collection[Backed]) -> bool:
        """Return whether messages of any of these queues could not be written."""
        return self.any and any(store in self._stores for queue in queues for store in queue.stored.stores())


class SyncWaiter(Protocol):
    """An object that waits until the messages of this turn are on disk, for example to send confirms."""

    def written(self, failures: WriteFailures) -> Callable[[], None] | None:
        """Handle the write of this turn's messages.

        Args:
            failures: What could not be written.
        Returns:
            Called once they are synced; None if nothing waits for that.
        """


class MessageStores:
    """Keeps messages in a data directory.

    Args:
        engine: The stores of the data directory.
        end_turn: Schedules the end of the turn, which calls write().
        call_later: The event loop's call_later, for periodic work.
        preload_messages: Number of messages that are loaded into memory when a queue is no longer lazy.
        embed_bodies_below: Bytes of a body below which a message is preloaded.
        gate: Tells when definitions are written; None if they are never pending.
        file_counts: Counts reads, writes and syncs of message files.

    Attributes:
        engine: The stores of the data directory.
        on_readable: Called with the numbers of queues that have ready messages again which could not be read before.
    """

    def __init__(
        self,
        engine: StorageEngine,
        end_turn: Callable[[], None],
        call_later: RealCallLater,
        preload_messages: int = 0,
        embed_bodies_below: int = 0,
        gate: DefinitionsGate | None = None,
        file_counts: FileCounts | None = None,
    ) -> None:
        self.file_counts = file_counts or FileCounts()
        self.on_readable: Callable[[Collection[int]], None] = _ignore
        self.engine = engine
        self._gate = gate or ALWAYS_OPEN
        #: Both are bound once, not for each queue.
        self._when_written, self._on_preload = self._gate.when_written, self._begin_preload
        if gate is not None:
            gate.sync_copies = engine.sync_copies
        self._end_turn = end_turn
        self._waiting: list[SyncWaiter] = []
        #: Called once the events of this turn are synced.
        self._settling: list[Callable[[], None]] = []
        self._preload_messages = preload_messages
        self._embed_bodies_below = embed_bodies_below
        #: Messages left to preload, by queue.
        self._preloading: dict[QueueBacking, int] = {}
        #: Whether the files of named readers are being read.
        self._refreshing = False
        #: Numbers of recovered queues that have not been opened.
        self._unclaimed = set(engine.queues)
        #: Numbers of queues and exchanges that could not be restored, by kind, virtual host and name.
        self._unrestored: dict[tuple[str, str, str], list[int]] = {}
        self._keeps_all_unclaimed = False
        self._call_later = call_later
        self._housekeeping_timer: RealTimer = call_later(_HOUSEKEEPING_SECONDS, self._housekeep)
        self._space_timer: RealTimer = call_later(0, self._check_space)

    # --- queues -------------------------------------------------------------------------------------------------------

    def open(self, request: StoreRequest, qid: int | None = None) -> QueueBacking:
        """Open the stores of a queue.

        Args:
            request: Properties of the queue.
            qid: Queue number on disk, from an earlier run; None for a new queue.
        Raises:
            ConnectionFault: RESOURCE_ERROR (506): its files cannot be created.
        """
        found = self._claim(request, qid)
        try:
            return QueueBacking(self.engine, request, found, self._on_preload, self._when_written)
        except OSError as error:
            raise _cannot_make(request, error) from error

    def open_level(self, request: StoreRequest, qid: int | None = None) -> LevelBacking:
        """Open the one store of an exchange or stream; see open()."""
        return self._open_level(request, self._claim(request, qid))

    def open_if_found(self, request: StoreRequest) -> LevelBacking | None:
        """Open the one store of an exchange or stream, without a number in the definitions, if there is one."""
        found = self._claim(request, None)
        return None if found is None else self._open_level(request, found)

    def _open_level(self, request: StoreRequest, found: StoredQueue | None) -> LevelBacking:
        try:
            return LevelBacking(self.engine, request, found, self._when_written)
        except OSError as error:
            raise _cannot_make(request, error) from error

    def _claim(self, request: StoreRequest, qid: int | None) -> StoredQueue | None:
        """Return the recovered messages of a queue or exchange; None if there are none."""
        found = qid if qid in self._unclaimed else self._find(request, qid or 0)
        if found is None:
            return None if qid is None else self._replace_missing(request, qid)
        self._unclaimed.discard(found)
        return self.engine.queues[found]

    def _replace_missing(self, request: StoreRequest, qid: int) -> StoredQueue | None:
        """Make a queue or exchange again on disk whose files are gone."""
        try:
            return self.engine.replace_missing(qid, _described(request))
        except OSError as error:
            raise _cannot_make(request, error) from error

    def _find(self, request: StoreRequest, older: int) -> int | None:
        """Find the messages of a queue by its name, because the saved definitions may be outdated."""
        numbers = self._numbers(request.kind, request.vhost_name, request.name)
        owner = request.owner
        found = (
            qid
            for qid in numbers
            if qid in self._unclaimed and self.engine.queues[qid].attributes.get("owner") == owner
        )
        return next((qid for qid in found if qid > older), None)

    def _numbers(self, kind: str, vhost_name: str, name: str) -> list[int]:
        """Return the numbers on disk of the queues, or exchanges, of a name."""
        attribute = "name" if kind == "queue" else kind
        wanted = vhost_name, name
        return [
            qid
            for qid, queue in self.engine.queues.items()
            if (queue.attributes.get("vhost"), queue.attributes.get(attribute)) == wanted
        ]

    def keep_unrestored(self, vhost_name: str, name: str, qid: int | None, kind: str = "queue") -> None:
        """Keep the messages on disk of a queue or exchange that could not be restored.

        Args:
            vhost_name: Name of the virtual host.
            name: Name of the queue or exchange.
            qid: Queue number on disk; None if unknown.
            kind: ``queue`` or ``exchange``.
        """
        kept = {each for each in self.engine.queues if each == qid}.union(self._numbers(kind, vhost_name, name))
        kept.update(self._numbers("deduplication" if kind == "exchange" else "offsets", vhost_name, name))
        self._unclaimed -= kept
        self._unrestored.setdefault((kind, vhost_name, name), []).extend(sorted(kept))

    def keep_all_unclaimed(self) -> None:
        """Keep all messages on disk, because a queue that could not be restored is unknown."""
        self._keeps_all_unclaimed = True

    def delete_unrestored(self, vhost_name: str, name: str, kind: str = "queue") -> None:
        """Delete the messages that keep_unrestored() has kept of a queue or exchange."""
        for qid in self._unrestored.pop((kind, vhost_name, name), ()):
            self._gate.when_written(partial(self.engine.delete_queue, self.engine.queues[qid]))

    def delete_unclaimed(self) -> None:
        """Delete the messages on disk of all queues that have not been opened; called after all have been restored."""
        self.engine.note_missing()
        report = self.engine.report
        if report.queues or report.exchanges or report.values:
            log.info("recovered %s", report.summary())
        if self._keeps_all_unclaimed:
            return
        for qid in sorted(self._unclaimed):
            self.engine.delete_queue(self.engine.queues[qid])
        self._unclaimed.clear()

    # --- end of a turn ------------------------------------------------------------------------------------------------

    def await_sync(self, waiter: SyncWaiter) -> None:
        """Notify a waiter once all messages of this turn are written and synced."""
        self._waiting.append(waiter)
        self._end_turn()

    def when_synced(self, callback: Callable[[], None]) -> None:
        """Call back once all messages of this turn are synced."""
        self.await_sync(_Callback(callback))

    def when_settled(self, callback: Callable[[], None]) -> None:
        """Call back once it is synced that messages have left their queues in this turn."""
        self._settling.append(callback)
        self._end_turn()

    def write(self) -> None:
        """Write the messages and events of this turn, and start a commit if a waiter needs it."""
        failures = self.engine.flush()
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            callbacks = _tell_written(waiting, WriteFailures(failures))
            self.engine.commit(partial(call_each, callbacks, "after a sync"))
        if self._settling:
            settling, self._settling = self._settling, []
            self.engine.commit(partial(call_each, settling, "after messages left their queues"), events=True)
        if self._preloading:
            self._preload()
        if self._refreshing:
            self._refreshing = self.engine.refresh_readers()
            if self._refreshing:
                self._end_turn()

    def _begin_preload(self, backing: QueueBacking) -> None:
        if self._preload_messages and self._embed_bodies_below:
            self._preloading[backing] = self._preload_messages
            self._end_turn()

    def _preload(self) -> None:
        """Load some messages of each preloading queue into memory."""
        for backing, left in list(self._preloading.items()):
            visited = backing.preload(min(left, _PRELOAD_STEP), self._embed_bodies_below)
            if visited and visited < left:
                self._preloading[backing] = left - visited
            else:
                del self._preloading[backing]
        if self._preloading:
            self._end_turn()

    # --- periodic work ------------------------------------------------------------------------------------------------

    def close(self) -> bool:
        """Write and sync everything, and close the data directory; return whether that succeeded."""
        self._housekeeping_timer.cancel()
        self._space_timer.cancel()
        self.write()
        return self.engine.close()

    def abandon(self) -> None:
        """Close all files and leave them as they are, as the death of the process does."""
        self._housekeeping_timer.cancel()
        self._space_timer.cancel()
        self.engine.abandon()

    def _housekeep(self) -> None:
        self._housekeeping_timer = self._call_later(_HOUSEKEEPING_SECONDS, self._housekeep)
        self.write()
        readable = self.engine.housekeeping()
        if readable:
            self.on_readable(readable)
        self._refreshing = self.engine.is_refreshing
        if self._refreshing:
            self._end_turn()

    def _check_space(self) -> None:
        self._space_timer = self._call_later(self.engine.watch_disk(), self._check_space)


def open_stores(
    settings: Settings,
    turn: Turn,
    timers: Timers,
    alarms: Alarms,
    gate: DefinitionsGate,
    call_soon_threadsafe: Callable[[Callable[[], None]], object],
    files: DiskFiles | None = None,
) -> MessageStores:
    """Open the data directory of a broker.

    Args:
        settings: Configuration of the broker.
        turn: Its turn, whose end calls write().
        timers: Its clock and timers.
        alarms: Its alarms; the disk alarm is set here.
        gate: Tells when its definitions are written.
        call_soon_threadsafe: Calls a function in the thread of the event loop.
        files: The file system interface; by default that of the operating system.
    Raises:
        DataDirectoryUnusableError: The data directory cannot be used.
    """
    path, options, files = settings.data_dir, settings.storage, files or DiskFiles()
    try:
        engine = StorageEngine(
            str(path),
            call_soon_threadsafe,
            _exit_after_failed_sync,
            files,
            timers,
            options=_engine_options(settings, gate),
            on_disk_alarm=partial(_update_alarm, alarms),
            on_work=turn.end_later,
        )
    except (DirectoryInUseError, DataDirectoryError, UnreadableFileError) as error:
        raise DataDirectoryUnusableError(f"cannot use the data directory {path}: {error}") from error
    except OSError as error:
        raise DataDirectoryUnusableError(unusable_text(path, error.strerror or str(error))) from error
    return MessageStores(
        engine,
        turn.end_later,
        timers.real_call_later,
        options.preload_messages,
        options.embed_bodies_below,
        gate,
        files.counts,
    )


def disk_free_limit(settings: Settings) -> int:
    """Return the bytes of free disk space below which the disk alarm is set."""
    disk_free = settings.disk_free_limit
    return disk_free.absolute if disk_free.relative is None else int(available_memory() * disk_free.relative)


def _engine_options(settings: Settings, gate: DefinitionsGate) -> EngineOptions:
    storage = settings.storage
    return EngineOptions(
        segment_bytes=storage.segment_size,
        event_retention=storage.event_retention * 1_000_000,
        reader_max_age=storage.reader_max_age * 1_000_000,
        reader_max_bytes=storage.reader_max_bytes,
        sync=SyncMode(storage.sync.mode),
        sync_interval=storage.sync.interval * 1000,
        disk_free_limit=disk_free_limit(settings),
        append_files=storage.append_files,
        read_files=storage.read_files,
        when_defined=gate.when_written,
        copies=gate.copies,
    )


def _update_alarm(alarms: Alarms, space: DiskSpace) -> None:
    """Set or clear the disk alarm, and log it with the reason."""
    if not space.alarm:
        log.warning("disk alarm cleared")
        alarms.clear("disk")
        return
    if space.lacks_descriptors:
        log.error(
            "disk alarm set: there is room, but no file descriptor (ulimit -n) is left for the files of queues;"
            " publishers are blocked until there is one"
        )
    else:
        log.warning("disk alarm set: publishers are blocked until there is room again")
    alarms.set("disk")


def _exit_after_failed_sync(error: OSError) -> None:
    """Exit at once: after a failed sync the content of the disk is unknown until recovery at the next start."""
    log.critical("cannot sync the data directory: %s; exiting, the next start recovers the data", error)
    logging.shutdown()
    os._exit(1)


def _cannot_make(request: StoreRequest, error: OSError) -> ConnectionFault:
    text = f"cannot make {_described(request)}: {error.strerror}"
    return ConnectionFault(ReplyCode.RESOURCE_ERROR, text)


def _described(request: StoreRequest) -> str:
    return f"{_NAMES.get(request.kind, request.kind)} '{request.name}' in vhost '{request.vhost_name}'"


def _ignore(numbers: Collection[int]) -> None:
    """Do nothing."""


class _Callback:
    """A SyncWaiter that only calls back after the sync."""

    __slots__ = ("_callback",)

    def __init__(self, callback: Callable[[], None]) -> None:
        self._callback = callback

    def written(self, failures: WriteFailures) -> Callable[[], None]:
        return self._callback


def _tell_written(waiting: list[SyncWaiter], failures: WriteFailures) -> list[Callable[[], None]]:
    """Tell all waiters that their messages are written; return what is to be called after the sync."""
    callbacks: list[Callable[[], None]] = []
    for waiter in waiting:
        try:
            callback = waiter.written(failures)
        except Exception:
            log.exception("internal error while messages were written")
        else:
            if callback is not None:
                callbacks.append(callback)
    return callbacks
