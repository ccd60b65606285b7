"""The archiver: copies what is new in a data directory into an archive, exactly once.

It reads as a streaming query does, with a named reader, so that the broker keeps what has not been copied. A batch is
written to files first. Then a manifest names them, together with the position at which the batch ends: from then on it
has been copied. Only after that the reader's file says so, and the broker may delete it. A crash before the manifest
leaves files that nobody sees, and the next start deletes them; a crash after it leaves a reader's file that is behind,
and the next batch corrects it.

Each start appends a manifest of its own. So an archiver that was believed dead cannot append any more, and what is
deleted as left over is not written by anybody.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from leveret.analytics.archive.archive_files import ArchiveFiles
from leveret.analytics.archive.archived_columns import ARCHIVED_TABLES, with_broker
from leveret.analytics.archive.data_writer import DataWriter
from leveret.analytics.archive.errors import ArchiveRefusedError
from leveret.analytics.archive.layout import TIME_COLUMNS, is_broker_name, parse_data_name
from leveret.analytics.archive.manifest import DataFile
from leveret.analytics.archive.manifest_log import ManifestLog, microseconds_now, read_manifests, store_ids
from leveret.analytics.archive.upkeep import Upkeep
from leveret.analytics.columns import TABLES
from leveret.analytics.held_snapshots import hold
from leveret.analytics.options import parse_options
from leveret.analytics.streaming.event_stream import EventStream
from leveret.analytics.streaming.message_stream import MessageStream
from leveret.analytics.table_reading import read_partition
from leveret.storage.directory.archive_note import NAME as NOTE_FILE
from leveret.storage.directory.archive_note import ArchiveNote, write_note
from leveret.storage.disk.files import DiskFiles
from leveret.storage.snapshots.lease import SNAPSHOTS, SnapshotLease
from leveret.storage.snapshots.snapshot import read_directory_format

_LOG: Final = logging.getLogger(__name__)
#: Seconds after which the segments of a batch are released if the archiver was killed; it renews its lease meanwhile.
_LEASE_SECONDS: Final = 120


@dataclass(frozen=True, slots=True)
class ArchiverOptions:
    """What an archiver copies.

    Attributes:
        data_dir: Path of the data directory.
        reader: Name of its reader in the data directory.
        broker: Name of the broker in the archive; empty for the one that the archive has for the data directory.
        default_broker: Name of a broker that is new in the archive, if `broker` is empty.
        vhost: Virtual host: its name, a pattern, or a list of these as names_text() makes it; None for all.
        queue: Name of the queue, or such a pattern or list; None for all.
        fail_on_data_loss: Whether it is an error that messages were removed before they could be copied. Otherwise that
            is logged, and counted in the manifest.
        batch: Maximum number of messages, and of events, that a manifest adds.
        keep: Microseconds for which rows are kept in the archive; None for ever.
        clock: Returns the time in microseconds since 1970.
    """

    data_dir: str
    reader: str
    broker: str = ""
    default_broker: str = "broker"
    vhost: str | None = None
    queue: str | None = None
    fail_on_data_loss: bool = False
    batch: int = 500_000
    keep: int | None = None
    clock: Callable[[], int] = microseconds_now

    def source_options(self, table: str) -> dict[str, str]:
        """Return the options of the stream of a table."""
        named = {
            "path": self.data_dir,
            "table": table,
            "vhost": self.vhost,
            "queue": self.queue,
            "reader": self.reader if table == "messages" else None,
            "leaseSeconds": str(_LEASE_SECONDS),
            "failOnDataLoss": str(self.fail_on_data_loss).lower(),
        }
        return {name: value for name, value in named.items() if value is not None}


class Copied(NamedTuple):
    """What one manifest has added.

    Attributes:
        number: Its number; 0 if there was nothing to add.
        rows: Number of rows by table.
        files: Number of files.
        is_all: Whether nothing was left.
    """

    number: int
    rows: dict[str, int]
    files: int
    is_all: bool


class Archiver:
    """Copies one data directory into an archive.

    Args:
        options: What to copy.
        files: The archive; it is made if it does not exist.
    Raises:
        DataDirectoryError: The path is not a data directory, or a newer version wrote it.
        ArchiveRefusedError: The broker's name does not fit the archive.
        ArchiveError: The archive cannot be read or written.
        AnalyticsError: The reader cannot be made.
    """

    def __init__(self, options: ArchiverOptions, files: ArchiveFiles) -> None:
        self._options = options
        self._files = files
        store_id = read_directory_format(DiskFiles(), options.data_dir).store_id.hex()
        files.make()
        self.broker = _broker_name(options, files, store_id)
        self._log = ManifestLog(files, store_id, self.broker, options.clock)
        self._upkeep = Upkeep(files, self._log, self.broker, options.keep, options.clock)
        # Of two archivers the manifests refuse the older one: it may have been believed dead.
        self._messages = MessageStream(parse_options(options.source_options("messages")).for_stream(), False)
        self._events = EventStream(parse_options(options.source_options("events")).for_stream())
        before = self._log.state.last
        self._position = before.position if before is not None else self._begin()
        self._log.append(self._position)
        self._delete_left_over()
        self._note_archive()

    def copy(self) -> Copied:
        """Copy what has come, up to a maximum, and commit it with a manifest.

        Raises:
            ArchiveRefusedError: Another archiver writes for this data directory.
            AnalyticsError: Something could not be read or written, or is gone. Begin again with another Archiver, which
                finds out what was committed.
        """
        batch = self._options.batch
        messages = self._messages.advance(self._position["messages"], batch)
        events = self._events.advance(self._position["events"], batch)
        taken = {"vhost": self._options.vhost, "queue": self._options.queue}
        following = {"messages": messages, "events": events, "taken": taken}
        release = self._hold(messages)
        try:
            files = self._write(following)
            rows = {table: sum(each.rows for each in files if each.table == table) for table in TIME_COLUMNS}
            # Ticks count as events, but make no rows.
            is_all = not files or ("unread" not in messages and max(rows.values()) < batch // 2)
            if not files and not self._is_worth_noting(following):
                return Copied(0, rows, 0, is_all)
            manifest = self._log.append(following, files)
            self._position = following
            self._messages.note_stored(messages)
            return Copied(manifest.number, rows, len(files), is_all)
        finally:
            release()

    def keep_up(self) -> None:
        """Remove what is too old, and put small files together, as far as is worth it now.

        Raises:
            ArchiveRefusedError: Another archiver writes for this data directory.
            ArchiveError: A file cannot be read, written or deleted. The archive has the same rows as before.
        """
        self._upkeep.work()

    def close(self) -> None:
        """Release what was read and not committed."""
        self._messages.stop()

    def _begin(self) -> dict[str, Any]:
        return {"messages": self._messages.first(), "events": self._events.first()}

    def _hold(self, messages: dict[str, Any]) -> Callable[[], object]:
        """Keep the segments of a batch while it is read, however slowly it is written."""
        name = messages["snapshot"]
        if not name or name == self._position["messages"]["snapshot"]:
            return lambda: None
        return hold(self._messages, SnapshotLease(f"{self._options.data_dir}/{SNAPSHOTS}/{name}"))

    def _write(self, following: dict[str, Any]) -> list[DataFile]:
        """Write what is between the present position and the following one; return the files."""
        with DataWriter(self._files, self.broker, self._log.state.next_number) as writer:
            for table, stream in (("messages", self._messages), ("events", self._events)):
                for partition in stream.partitions(self._position[table], following[table]):
                    for batch in read_partition(partition, table, list(TABLES[table]), fail_fast=False):
                        writer.add(table, with_broker(batch, self.broker, list(ARCHIVED_TABLES[table])))
            return writer.finish()

    def _is_worth_noting(self, following: dict[str, Any]) -> bool:
        """Return whether a position without new rows is noted: not for every tick of the event log."""
        before = self._position
        is_same_file: bool = following["events"]["file"] == before["events"]["file"]
        return following["messages"] != before["messages"] or not is_same_file

    def _note_archive(self) -> None:
        """Note in the data directory where its archive is."""
        url = self._files.local_path or self._files.url
        try:
            write_note(DiskFiles(), self._options.data_dir, ArchiveNote(url, self.broker))
        except OSError as error:
            # Only hints are missing then.
            _LOG.warning("%s/%s cannot be written: %s", self._options.data_dir, NOTE_FILE, error.strerror or error)

    def _delete_left_over(self) -> None:
        """Delete files of this broker that no manifest names: an archiver was killed before it could append one."""
        state = self._log.state
        there = [path for table in TIME_COLUMNS for path in self._files.paths_below(table)]
        for path in there:
            name = parse_data_name(path)
            is_ours = name is not None and name.broker == self.broker
            if is_ours and path not in state.files and path not in state.removed:
                self._files.delete(path)
        self._upkeep.note_files(there)


def _broker_name(options: ArchiverOptions, files: ArchiveFiles, store_id: str) -> str:
    """Return the name of the broker in the archive.

    Raises:
        ArchiveRefusedError: The archive knows the data directory by another name, or another one by this name.
    """
    known: dict[str, str] = {}
    for each in store_ids(files):
        last = read_manifests(files, each).last
        if last is not None:
            known[each] = last.broker
    if store_id in known:
        name = known[store_id]
        if options.broker not in ("", name):
            raise ArchiveRefusedError(
                f"the broker of {options.data_dir} is called {name} in {files.shown}, and cannot become "
                f"{options.broker}"
            )
        return name
    name = options.broker or options.default_broker
    if not is_broker_name(name):
        raise ArchiveRefusedError(
            f"a broker's name has 1 to 64 letters, digits and _.- and begins with a letter or digit, not '{name[:100]}'"
        )
    if name in known.values():
        raise ArchiveRefusedError(
            f"{files.shown} has another data directory whose broker is called {name}; choose a name with --broker NAME"
        )
    return name
