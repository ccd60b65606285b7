"""`leveret-analytics archive`: copies messages, events and audit log of a broker into an archive, again and again."""

from __future__ import annotations

import argparse
import logging
import re
import socket
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from threading import Thread
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from leveret.analytics.archive.archive_files import ArchiveFiles
from leveret.analytics.archive.buckets import Buckets
from leveret.analytics.archive.data_writer import DataWriter
from leveret.analytics.archive.layout import is_broker_name, parse_data_name
from leveret.analytics.archive.manifests import (
    BrokerFiles,
    DataFile,
    Manifest,
    ManifestLog,
    last_manifests,
    microseconds_now,
)
from leveret.analytics.archive.upkeep import Upkeep
from leveret.analytics.arguments import ARCHIVE_PROGRAM, end_at_eof, exit_on_sigterm, make_archive_parser, say
from leveret.analytics.arrow_schema import with_broker
from leveret.analytics.bodies.value_types import parse_type, type_ddl
from leveret.analytics.columns import ARCHIVED_TABLES, OF_RULE, TABLES, TIME_COLUMNS
from leveret.analytics.data_files import absolute_location
from leveret.analytics.errors import AnalyticsError, ArchiveError, ArchiveRefusedError, missing_iceberg
from leveret.analytics.option_values import names_text
from leveret.analytics.options import parse_options
from leveret.analytics.streaming.event_stream import AuditStream, EventStream
from leveret.analytics.streaming.message_stream import MessageStream
from leveret.analytics.tables.audit_rows import START as AUDIT_START
from leveret.analytics.tables.body_rules import RULES
from leveret.analytics.tables.partitions import Partition
from leveret.analytics.tables.query_snapshots import hold
from leveret.analytics.tables.table_reading import read_partition
from leveret.analytics.tables.typed_tables import TypedTables, UnfitTypeError, merged_type
from leveret.storage.directory.archive_note import NAME as NOTE_FILE
from leveret.storage.directory.archive_note import ArchiveNote, write_note
from leveret.storage.directory.directory_format import DataDirectoryError
from leveret.storage.disk.files import DiskFiles
from leveret.storage.readers.body_rules import BodyRule, pack_rules
from leveret.storage.snapshots.lease import SNAPSHOTS, SnapshotLease
from leveret.storage.snapshots.snapshot import SnapshotError, read_directory_format
from leveret.storage.url_secrets import without_secrets

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
        batch: Maximum number of messages, of events, and of lines of the audit log that a manifest adds.
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


class Stream(Protocol):
    """Reads a table from a position on, which is JSON."""

    def advance(self, start: dict[str, Any], limit: int) -> dict[str, Any]:
        """Return the position after at most so many rows."""

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Iterable[Partition]:
        """Return what is between two positions."""


class Tables(Protocol):
    """Tables that have the files of the archive."""

    @property
    def buckets(self) -> Buckets:
        """The buckets into which rows are put."""

    def follow(self, state: BrokerFiles) -> object:
        """Make the tables the same as the manifests.

        Raises:
            ArchiveError: That is not possible now.
        """


#: Opens the tables of an archive, which take the time from a clock; returns None for none.
OpenTables: TypeAlias = Callable[[ArchiveFiles, Callable[[], int]], Tables | None]


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
        files: The archive; it is made if it does not exist.
        tables: Tables that have its files; None for none.
        say: Tells the user what is wrong with a rule for bodies.
    Raises:
        DataDirectoryError: The path is not a data directory, or a newer version wrote it.
        ArchiveRefusedError: The broker's name does not fit the archive.
        ArchiveError: The archive cannot be read or written.
        AnalyticsError: The reader cannot be made.
    """

    def __init__(
        self,
        options: ArchiverOptions,
        files: ArchiveFiles,
        tables: Tables | None = None,
        say: Callable[[str], object] = _LOG.warning,
    ) -> None:
        self._options = options
        self._files = files
        self._tables = tables
        self._buckets = None if tables is None else tables.buckets
        #: The newest manifest that the tables have; None before they have one.
        self._followed: Manifest | None = None
        store_id = read_directory_format(DiskFiles(), options.data_dir).store_id.hex()
        files.make()
        known = last_manifests(files)
        self.broker = _broker_name(options, files, store_id, {each: last.broker for each, last in known.items()})
        self._typed = TypedTables(options.data_dir, _types_of_bodies(known.values()), say)
        self._rules: list[BodyRule] | None = None
        self._log = ManifestLog(files, store_id, self.broker, options.clock)
        self._upkeep = Upkeep(files, self._log, self.broker, options.keep, options.clock, self._buckets, self._typed)
        # Of two archivers the manifests refuse the older one: it may have been believed dead.
        self._messages = MessageStream(parse_options(options.source_options("messages")).for_stream(), False)
        events = EventStream(parse_options(options.source_options("events")).for_stream())
        self._streams: dict[str, Stream] = {"messages": self._messages, "events": events}
        if options.queue is None:
            # Its lines are not of queues.
            self._streams["audit"] = AuditStream(options.data_dir, options.vhost, options.fail_on_data_loss)
        before = self._log.state.last
        copied = {"messages": self._messages.first(), "events": events.first()} if before is None else before.position
        # An older version has copied no audit log: all of it is new.
        self._position: dict[str, Any] = {"audit": AUDIT_START, **copied}
        self._log.append(self._position)
        if tables is None:
            self._delete_left_over()
        self._note_archive()

    def copy(self) -> Copied:
        """Copy what has come, up to a maximum, and commit it with a manifest.

        Raises:
            ArchiveRefusedError: Another archiver writes for this data directory.
            AnalyticsError: Something could not be read or written, or is gone. Begin again with another Archiver, which
                finds out what was committed.
        """
        batch, before = self._options.batch, self._position
        read = {table: stream.advance(before[table], batch) for table, stream in self._streams.items()}
        taken = {"vhost": self._options.vhost, "queue": self._options.queue}
        following = {**before, **read, "taken": taken}
        messages = following["messages"]
        self._note_rules(self._typed.refresh())
        if self._typed.types:
            following["bodies"] = dict(self._typed.types)
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

    def follow(self) -> None:
        """Make the tables that have the archive's files the same as its manifests.

        Raises:
            ArchiveError: That is not possible now. The archive has what it had before.
        """
        state = self._log.state
        if self._tables is not None and state.last is not self._followed:
            self._tables.follow(state)
            if self._followed is None:
                # Not earlier: the tables may have had such a file until now.
                self._delete_left_over()
            self._followed = state.last

    def keep_up(self) -> None:
        """Remove what is too old, and put small files together, as far as is worth it now.

        Files that tables have are only removed when the tables were the same as the manifests: see follow().

        Raises:
            ArchiveRefusedError: Another archiver writes for this data directory.
            ArchiveError: A file cannot be read, written or deleted. The archive has the same rows as before.
        """
        self._upkeep.work()

    def close(self) -> None:
        """Release what was read and not committed."""
        self._messages.stop()

    def _hold(self, messages: dict[str, Any]) -> Callable[[], object]:
        """Keep the segments of a batch while it is read, however slowly it is written."""
        name = messages["snapshot"]
        if not name or name == self._position["messages"]["snapshot"]:
            return lambda: None
        return hold(self._messages, SnapshotLease(f"{self._options.data_dir}/{SNAPSHOTS}/{name}"))

    def _write(self, following: dict[str, Any]) -> list[DataFile]:
        """Write what is between the present position and the following one; return the files."""
        number, schemas = self._log.state.next_number, self._typed.schemas
        with DataWriter(self._files, self.broker, number, self._buckets, schemas) as writer:
            for table, stream in self._streams.items():
                for partition in stream.partitions(self._position[table], following[table]):
                    for batch in read_partition(partition, table, list(TABLES[table]), fail_fast=False):
                        rows = with_broker(batch, self.broker, list(ARCHIVED_TABLES[table]))
                        writer.add(table, rows)
                        for typed, values in self._typed.rows(rows) if table == "messages" else ():
                            writer.add(typed, values)
            return writer.finish()

    def _is_worth_noting(self, following: dict[str, Any]) -> bool:
        """Return whether a position without new rows is noted: not for every tick of the event log."""
        before = self._position
        is_other_file = any(following[log]["file"] != before[log]["file"] for log in ("events", "audit"))
        return is_other_file or following["messages"] != before["messages"]

    def _note_archive(self) -> None:
        """Note in the data directory where its archive is."""
        url = self._files.local_path or self._files.url
        try:
            write_note(DiskFiles(), self._options.data_dir, ArchiveNote(url, self.broker))
        except OSError as error:
            # Only hints are missing then.
            _LOG.warning("%s/%s cannot be written: %s", self._options.data_dir, NOTE_FILE, error.strerror or error)

    def _note_rules(self, rules: list[BodyRule]) -> None:
        """Note the rules for bodies in the archive, for queries of it alone, without passwords."""
        if rules != self._rules:
            shown = [replace(each, registry=without_secrets(each.registry)) for each in rules]
            path = f"{RULES}/{self._log.store_id}.json"
            if shown or self._files.read(path) is not None:
                self._files.replace(path, pack_rules(shown))
            self._rules = rules

    def _delete_left_over(self) -> None:
        """Delete files of this broker that no manifest names: an archiver was killed before it could append one."""
        state = self._log.state
        tables = [*TIME_COLUMNS, *(name for name in self._files.names("") if name.startswith(OF_RULE))]
        there = [path for table in tables for path in self._files.paths_below(table)]
        for path in there:
            name = parse_data_name(path)
            is_ours = name is not None and name.broker == self.broker
            if is_ours and path not in state.files and path not in state.removed:
                self._files.delete(path)
        self._upkeep.note_files(there)


def _types_of_bodies(manifests: Iterable[Manifest]) -> dict[str, str]:
    """Return the types of `value` in tables with what bodies say, by table, as the brokers of the archive have them."""
    found: dict[str, str] = {}
    for last in manifests:
        for table, ddl in last.position.get("bodies", {}).items():
            try:
                found[table] = type_ddl(merged_type(parse_type(found.get(table, ddl)), parse_type(ddl)))
            except UnfitTypeError:
                # Of a broker that was archived elsewhere before.
                continue
    return found


def _broker_name(options: ArchiverOptions, files: ArchiveFiles, store_id: str, known: Mapping[str, str]) -> str:
    """Return the name of the broker in the archive, which has some by the IDs of data directories."""
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


_NOT_IN_A_NAME: Final = re.compile(r"[^A-Za-z0-9_-]+")
_say: Final = partial(say, ARCHIVE_PROGRAM)


def main(arguments: Sequence[str]) -> int:
    """Run the archiver.

    Args:
        arguments: Command-line arguments after `archive`.
    Returns:
        The exit status: 0 for success, 1 for failure, 2 for wrong arguments, 130 after SIGINT.
    """
    given = make_archive_parser().parse_args(arguments)
    logging.basicConfig(format=f"{ARCHIVE_PROGRAM}: %(message)s", level=logging.WARNING)
    try:
        with exit_on_sigterm():
            if given.until_eof:
                Thread(target=end_at_eof, daemon=True).start()
            options, open_tables = _options(given), _open_tables(given)
            if given.once:
                _run(options, given.to, None, open_tables)
            else:
                _run_for_ever(options, given.to, given.interval, open_tables)
    except (AnalyticsError, DataDirectoryError, SnapshotError, OSError) as error:
        _say(str(error))
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def _options(given: argparse.Namespace) -> ArchiverOptions:
    if "://" in given.data_dir:
        raise AnalyticsError("the archiver needs a data directory on a local or mounted file system")
    host = _NOT_IN_A_NAME.sub("-", socket.gethostname().partition(".")[0]).strip("-_")[:64]
    return ArchiverOptions(
        absolute_location(given.data_dir),
        given.reader,
        given.broker,
        host or "broker",
        None if given.vhost is None else names_text(given.vhost),
        None if given.queue is None else names_text(given.queue),
        given.fail_on_data_loss == "true",
        keep=given.keep,
    )


def _open_tables(given: argparse.Namespace) -> OpenTables:
    """Return what opens the tables of an archive; None without tables."""
    if not given.iceberg:
        return lambda files, clock: None
    try:
        # Only who wants tables needs the library, which takes long to load.
        from leveret.analytics.iceberg.tables import IcebergTables
    except ImportError as error:
        raise missing_iceberg(error) from error
    return lambda files, clock: IcebergTables(given.iceberg, given.iceberg_namespace, files, clock)


def _run_for_ever(options: ArchiverOptions, url: str, interval: float, open_tables: OpenTables) -> None:
    """Copy until something fails that time does not mend."""
    while True:
        try:
            _run(options, url, interval, open_tables)
        except (AnalyticsError, SnapshotError, OSError) as error:
            is_loss = options.fail_on_data_loss and not isinstance(error, ArchiveError | SnapshotError | OSError)
            if is_loss or isinstance(error, ArchiveRefusedError):
                raise
            # The store may be out of reach, or the disk full. Whether the last manifest was written is not known.
            _say(f"{error}; it tries again in {interval:g} s")
            time.sleep(interval)


def _run(options: ArchiverOptions, url: str, interval: float | None, open_tables: OpenTables) -> None:
    """Copy what is there, and then what comes, once in an interval; None to end when nothing is left."""
    files = ArchiveFiles(url)
    if files.is_inside(options.data_dir):
        raise ArchiveRefusedError(f"{files.shown} is in the data directory; put the archive somewhere else")
    archiver = Archiver(options, files, open_tables(files, options.clock), _say)
    follower = _Follower(archiver, fails=interval is None)
    try:
        while True:
            began = time.monotonic()
            copied = archiver.copy()
            if copied.number:
                _tell(copied)
            has_followed = follower.follow()
            if not copied.is_all:
                continue
            if has_followed:
                archiver.keep_up()
                follower.follow()
            if interval is None:
                return
            time.sleep(max(0.0, began + interval - time.monotonic()))
    finally:
        archiver.close()


class _Follower:
    """Makes tables follow the archive, which goes on without them.

    Args:
        fails: Whether it is an error that they cannot. Otherwise it is said once.
    """

    def __init__(self, archiver: Archiver, fails: bool) -> None:
        self._archiver = archiver
        self._fails = fails
        self._said = ""

    def follow(self) -> bool:
        """Return whether the tables are the same as the manifests."""
        try:
            self._archiver.follow()
        except ArchiveError as error:
            if self._fails:
                raise
            if str(error) != self._said:
                self._said = str(error)
                _say(f"{error} (the archive goes on without the tables)")
            return False
        if self._said:
            self._said = ""
            _say("the tables have followed: they are the same as the archive again")
        return True


def _tell(copied: Copied) -> None:
    named = {"audit": "lines of the audit log"}
    rows = ", ".join(f"{count} {named.get(table, table)}" for table, count in copied.rows.items())
    _say(f"manifest {copied.number}: {rows} in {copied.files} files")
