"""The data directory of a running broker: opened, written at the end of every turn, looked after, closed."""

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
from leveret.broker.core.memory import available_memory
from leveret.broker.core.message_storage import DiskStorage
from leveret.broker.core.timers import Timer
from leveret.storage.commit.committer import SyncMode
from leveret.storage.directory.directory_format import DataDirectoryError
from leveret.storage.disk.files import DirectoryInUseError, DiskFiles
from leveret.storage.engine import EngineOptions, StorageEngine

log = logging.getLogger("leveret.storage")

_UPKEEP_SECONDS: Final = 1.0
#: Bytes that a start takes at most where nothing has to be recovered.
_ROOM_TO_START: Final = 256 * 1024


class DiskError(Exception):
    """The data directory cannot be used; the text says why and what to do, in one line."""


def unusable(data_dir: Path, reason: str) -> str:
    """What is said of a data directory that cannot be used, and what is to be done.

    Args:
        data_dir: The directory.
        reason: Why; SQLite calls most of what goes wrong on a full disk an I/O error.
    """
    is_full = data_dir.is_dir() and shutil.disk_usage(data_dir).free < _ROOM_TO_START
    advice = "its disk is full, make room" if is_full else "choose another --data-dir"
    return f"cannot use the data directory {data_dir}: {reason}; {advice}"


class Disk:
    """The messages of a broker on disk.

    Args:
        broker: Its queues keep their messages here from now on.
        settings: Its configuration.
        call_soon_threadsafe: Hands a function to the thread of the event loop.
    Raises:
        DiskError: The data directory cannot be used.

    Attributes:
        engine: The stores.
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
        self.engine = _open(self._path, files, engine_options, call_soon_threadsafe, self._note_alarm)
        options = settings.storage
        self._storage = DiskStorage(
            self.engine, broker.turn.end_later, options.preload_messages, options.embed_bodies_below, broker.gate
        )
        broker.storage = self._storage
        if self.engine.report.queues:
            log.info("recovered %s", self.engine.report.summary())
        self._tidying: Timer = self._timers.call_later(_UPKEEP_SECONDS, self._tidy)
        self._watching: Timer = self._timers.call_later(0, self._watch)

    def write(self) -> None:
        """Write what queues were given in this turn."""
        self._storage.write()

    def close(self) -> None:
        """Write and sync everything, and stop."""
        self._tidying.cancel()
        self._watching.cancel()
        self._storage.write()
        if not self.engine.close():
            log.error("not all messages could be written to %s", self._path)

    def _tidy(self) -> None:
        self._tidying = self._timers.call_later(_UPKEEP_SECONDS, self._tidy)
        self._storage.write()
        self.engine.housekeeping()

    def _note_alarm(self, is_set: bool) -> None:
        """Set and clear the disk alarm, and say why."""
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

    def _watch(self) -> None:
        self._watching = self._timers.call_later(self.engine.watch_disk(), self._watch)


def _open(
    path: Path,
    files: DiskFiles,
    options: EngineOptions,
    call_soon_threadsafe: Callable[[Callable[[], None]], object],
    on_disk_alarm: Callable[[bool], None],
) -> StorageEngine:
    try:
        return StorageEngine(str(path), call_soon_threadsafe, _die, files, options=options, on_disk_alarm=on_disk_alarm)
    except (DirectoryInUseError, DataDirectoryError) as error:
        raise DiskError(f"cannot use the data directory {path}: {error}") from error
    except OSError as error:
        raise DiskError(unusable(path, error.strerror or str(error))) from error


def disk_free_limit(settings: Settings) -> int:
    """Bytes of free disk space below which the disk alarm is set."""
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


def _die(error: OSError) -> None:
    """A sync has failed: what the disk holds is not known any more. The next start finds out."""
    log.critical("cannot sync the data directory: %s; stopping, to recover what is there at the next start", error)
    logging.shutdown()
    os._exit(1)
