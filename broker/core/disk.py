"""Opens, writes, maintains and closes the data directory of a broker."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

from leveret.broker.config.options import Settings
from leveret.broker.core.broker import Broker
from leveret.broker.core.message_storage import DiskStorage
from leveret.broker.core.resources.memory import available_memory
from leveret.broker.core.scheduling.timers import Timer
from leveret.storage.commit.committer import SyncMode
from leveret.storage.directory.directory_format import DataDirectoryError
from leveret.storage.disk.files import DirectoryInUseError, DiskFiles
from leveret.storage.engine import EngineOptions, StorageEngine

log = logging.getLogger("leveret.storage")

_HOUSEKEEPING_SECONDS: Final = 1.0
#: Bytes of disk space that a start without recovery needs at most.
_ROOM_TO_START: Final = 256 * 1024


class DiskError(Exception):
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


class Disk:
    """The on-disk storage of a broker's messages.

    Args:
        broker: The broker; its queues store their messages here from now on.
        settings: Configuration of the broker.
        call_soon_threadsafe: Calls a function in the thread of the event loop.
    Raises:
        DiskError: The data directory cannot be used.

    Attributes:
        engine: The message stores.
    """

    def __init__(
        self,
        broker: Broker,
        settings: Settings,
        call_soon_threadsafe: Callable[[Callable[[], None]], object],
    ) -> None:
        self._path = settings.data_dir
        self._timers = broker.timers
        self._alarms = broker.alarms
        files = DiskFiles()
        broker.file_counts = files.counts
        engine_options = replace(_options(settings), holds_moved=lambda: not broker.gate.is_open)
        self.engine = _open(self._path, files, engine_options, call_soon_threadsafe, self._update_alarm)
        options = settings.storage
        self._storage = DiskStorage(
            self.engine, broker.turn.end_later, options.preload_messages, options.embed_bodies_below, broker.gate
        )
        broker.storage = self._storage
        if self.engine.report.queues:
            log.info("recovered %s", self.engine.report.summary())
        self._housekeeping_timer: Timer = self._timers.call_later(_HOUSEKEEPING_SECONDS, self._housekeep)
        self._disk_timer: Timer = self._timers.call_later(0, self._watch_disk)

    def write(self) -> None:
        """Write the messages and events of this turn."""
        self._storage.write()

    def close(self) -> None:
        """Write and sync everything, and close the data directory."""
        self._housekeeping_timer.cancel()
        self._disk_timer.cancel()
        self._storage.write()
        if not self.engine.close():
            log.error("not all messages could be written to %s", self._path)

    def _housekeep(self) -> None:
        self._housekeeping_timer = self._timers.call_later(_HOUSEKEEPING_SECONDS, self._housekeep)
        self._storage.write()
        self.engine.housekeeping()

    def _update_alarm(self, is_set: bool) -> None:
        """Set or clear the disk alarm, and log it with the reason."""
        if not is_set:
            log.warning("disk alarm cleared")
            self._alarms.clear("disk")
        elif hasattr(self, "engine") and self.engine.disk.lacks_descriptors:
            log.error(
                "disk alarm set: there is room, but no file descriptor (ulimit -n) is left for the files of queues;"
                " publishers are blocked until there is one"
            )
            self._alarms.set("disk")
        else:
            log.warning("disk alarm set: publishers are blocked until there is room again")
            self._alarms.set("disk")

    def _watch_disk(self) -> None:
        self._disk_timer = self._timers.call_later(self.engine.watch_disk(), self._watch_disk)


def _open(
    path: Path,
    files: DiskFiles,
    options: EngineOptions,
    call_soon_threadsafe: Callable[[Callable[[], None]], object],
    on_disk_alarm: Callable[[bool], None],
) -> StorageEngine:
    try:
        return StorageEngine(
            str(path),
            call_soon_threadsafe,
            _exit_after_failed_sync,
            files,
            options=options,
            on_disk_alarm=on_disk_alarm,
        )
    except (DirectoryInUseError, DataDirectoryError) as error:
        raise DiskError(f"cannot use the data directory {path}: {error}") from error
    except OSError as error:
        raise DiskError(unusable_text(path, error.strerror or str(error))) from error


def disk_free_limit(settings: Settings) -> int:
    """Return the bytes of free disk space below which the disk alarm is set."""
    disk_free = settings.disk_free_limit
    return disk_free.absolute if disk_free.relative is None else int(available_memory() * disk_free.relative)


def _options(settings: Settings) -> EngineOptions:
    storage = settings.storage
    return EngineOptions(
        segment_bytes=storage.segment_size,
        event_retention=storage.event_retention * 1_000_000,
        sync=SyncMode(storage.sync.mode),
        sync_interval=storage.sync.interval * 1000,
        disk_free_limit=disk_free_limit(settings),
        append_files=storage.append_files,
        read_files=storage.read_files,
    )


def _exit_after_failed_sync(error: OSError) -> None:
    """Exit at once: after a failed sync the content of the disk is unknown until recovery at the next start."""
    log.critical("cannot sync the data directory: %s; exiting, the next start recovers the data", error)
    logging.shutdown()
    os._exit(1)
