"""Keeps the Iceberg tables of an archive the same as its manifests.

A snapshot is the difference between the files that a table has of a broker and those that its manifests name. So what
was committed is never committed again, whatever became of the program that did it, and what was not is found.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError, TableAlreadyExistsError
from pyiceberg.manifest import DataFile, ManifestContent
from pyiceberg.table import Table, Transaction
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update.snapshot import ExpireSnapshots

from leveret.analytics.archive import manifests
from leveret.analytics.archive.archive_files import ArchiveFiles
from leveret.analytics.archive.layout import parse_data_name
from leveret.analytics.archive.manifests import BrokerFiles, Manifest
from leveret.analytics.archive.upkeep import GRACE
from leveret.analytics.columns import TIME_COLUMNS
from leveret.analytics.errors import ArchiveError, ArchiveRefusedError
from leveret.analytics.iceberg.catalogs import catalog_errors, open_catalog
from leveret.analytics.iceberg.listing import table_path
from leveret.analytics.iceberg.table_layout import (
    add_bucket,
    new_table,
    prepare,
    queue_buckets,
    remove_bucket,
    table_file,
)
from leveret.storage.url_secrets import mask_url

_LOG: Final = logging.getLogger(__name__)
#: What the summary of a snapshot says: whose files it has added or removed, up to which manifest, and (of a repair)
#: that what others have done before does not matter.
STORE: Final = "leveret.store-id"
BROKER: Final = "leveret.broker"
NUMBER: Final = "leveret.manifest-number"
REPAIRED: Final = "leveret.repaired"
#: How often a commit is tried when others commit at the same time.
_TRIES: Final = 10
#: So many snapshots are removed at a time.
_EXPIRED_MIN: Final = 30


class _Known(NamedTuple):
    """What a table has of a broker.

    Attributes:
        snapshot: ID of the snapshot that had it; None for a table without snapshots.
        paths: Paths of its files in the archive.
    """

    snapshot: int | None
    paths: frozenset[str]


class IcebergTables:
    """The tables of an archive in a catalog.

    Args:
        catalog: `archive`, a URL, or a name in pyiceberg's configuration.
        namespace: Namespace of the tables, which is made if it does not exist.
        clock: Returns the time in microseconds since 1970.

    Attributes:
        buckets: The buckets into which the archiver puts rows.
    """

    def __init__(self, catalog: str, namespace: str, files: ArchiveFiles, clock: Callable[[], int]) -> None:
        self._name = catalog
        self._namespace = namespace
        self._files = files
        self._clock = clock
        self.buckets = queue_buckets()
        self._catalog: Catalog | None = None
        self._tables: dict[str, Table] = {}
        #: Of tables with what bodies say, the types of the values in DDL.
        self._types: dict[str, str] = {}
        #: By table and broker.
        self._known: dict[tuple[str, str], _Known] = {}
        #: By table, the newest snapshot before which nobody else has written.
        self._checked: dict[str, int] = {}

    def follow(self, state: BrokerFiles, brokers: Collection[str] = ()) -> dict[str, int]:
        """Commit what the manifests of a data directory say and the tables do not have yet.

        Args:
            brokers: To repair the tables, the names of all brokers of the archive: it does not matter then whether
                others have written to a table or it is ahead, and files that are of no broker are removed from it.
        Returns:
            By table, the number of files that have been added or removed.
        Raises:
            ArchiveRefusedError: Somebody else has written to a table, or it is ahead of the manifests.
            ArchiveError: The catalog or the archive cannot be read or written, or it is not known whether a commit was
                made. Try it again: what was committed is found.
        """
        last = state.last
        if last is None:
            return {}
        changed = {}
        typed: Mapping[str, str] = last.position.get("bodies", {})
        for name in (*TIME_COLUMNS, *typed):
            if self._types.get(name) != typed.get(name):
                # It is made ready for its values again.
                self._tables.pop(name, None)
                self._types[name] = typed[name]
            wanted = {path: each for path, each in state.files.items() if each.table == name}
            try:
                with catalog_errors(self._name):
                    changed[name] = self._follow(name, last, wanted, brokers)
            except ArchiveError:
                self._tables.pop(name, None)
                self._known.pop((name, last.broker), None)
                raise
        return changed

    def _follow(
        self, name: str, last: Manifest, wanted: dict[str, manifests.DataFile], brokers: Collection[str]
    ) -> int:
        for _ in range(_TRIES):
            table = self._table(name)
            foreign = self._foreign_snapshot(table, name)
            if brokers:
                self._check_deletes(table, name)
            else:
                self._check_history(foreign, name)
                self._check_number(table, name, last)
            there = self._paths(table, name, last.broker, brokers)
            added, removed = [each for path, each in wanted.items() if path not in there], there - wanted.keys()
            if not added and not removed and (foreign is None or not brokers):
                return 0
            try:
                committed = self._commit(table, last, added, removed, bool(brokers))
            except CommitFailedException:
                self._known.pop((name, last.broker), None)
                continue
            self._tables[name] = committed
            snapshot = committed.current_snapshot()
            assert snapshot is not None, "a snapshot was committed"
            self._known[name, last.broker] = _Known(snapshot.snapshot_id, frozenset(wanted))
            self._checked[name] = snapshot.snapshot_id
            return len(added) + len(removed)
        raise ArchiveError(
            f"others commit to table {self._shown(name)} all the time: {_TRIES} commits were refused; it tries again"
        )

    # -- tables -------------------------------------------------------------------------------------------

    def _table(self, name: str) -> Table:
        """Return a table as it is now; it is made if it does not exist."""
        if name in self._tables:
            return self._tables[name].refresh()
        if self._catalog is None:
            self._catalog = open_catalog(self._name, self._files)
        identifier = (self._namespace, name)
        try:
            table = self._catalog.load_table(identifier)
        except NoSuchTableError:
            self._catalog.create_namespace_if_not_exists(self._namespace)
            location = self._files.location(table_path(identifier))
            try:
                table = self._catalog.create_table(identifier, location=location, **new_table(name))
            except TableAlreadyExistsError:
                table = self._catalog.load_table(identifier)
        archive, values = mask_url(self._files.location("").rstrip("/")), self._types.get(name)
        try:
            prepare(table, name, archive, self._shown(name), values)
        except CommitFailedException:
            # Another archiver prepares it.
            table = self._catalog.load_table(identifier)
            prepare(table, name, archive, self._shown(name), values)
        self._tables[name] = table
        return table

    def _shown(self, name: str) -> str:
        return f"{self._namespace}.{name} of the Iceberg catalog {mask_url(self._name)}"

    def _foreign_snapshot(self, table: Table, name: str) -> Snapshot | None:
        """Return a snapshot of somebody else since the table was checked, or repaired; None if there is none."""
        snapshot = newest = table.current_snapshot()
        while snapshot is not None and snapshot.snapshot_id != self._checked.get(name):
            said = _summary(snapshot)
            if STORE not in said:
                return snapshot
            if REPAIRED in said:
                break
            snapshot = _parent(table, snapshot)
        if newest is not None:
            self._checked[name] = newest.snapshot_id
        return None

    def _check_history(self, foreign: Snapshot | None, name: str) -> None:
        """Refuse a table that somebody else has written to."""
        if foreign is not None:
            what = foreign.summary.operation.value if foreign.summary is not None else "unknown"
            raise ArchiveRefusedError(
                f"somebody else has written to table {self._shown(name)} (snapshot {foreign.snapshot_id}, {what}); "
                "keep others from writing, and run leveret-analytics iceberg --repair, which makes its rows those of "
                "the archive again"
            )

    def _check_deletes(self, table: Table, name: str) -> None:
        """Refuse to repair a table that has files of deleted rows."""
        snapshot = table.current_snapshot()
        found = snapshot.manifests(table.io) if snapshot is not None else []
        if any(each.content == ManifestContent.DELETES for each in found):
            raise ArchiveRefusedError(
                f"table {self._shown(name)} has files of deleted rows, which somebody else has written; drop the "
                "table: it is made again from the archive"
            )

    def _check_number(self, table: Table, name: str, last: Manifest) -> None:
        """Refuse a table that has a later manifest than the archive has."""
        found = int(table.properties.get(_number_key(last.store_id), "0"))
        if found > last.number:
            raise ArchiveRefusedError(
                f"table {self._shown(name)} has manifest {found} of broker {last.broker}, but the newest one of "
                f"{self._files.shown} is {last.number}: the archive is an older copy; bring back the newer one, or run "
                "leveret-analytics iceberg --repair, which makes the table's rows those of this archive"
            )

    def _paths(self, table: Table, name: str, broker: str, brokers: Collection[str]) -> frozenset[str]:
        """Return the paths in the archive of the files that a table has of a broker; to repair it, of none too."""
        snapshot = table.current_snapshot()
        known = self._known.get((name, broker))
        if known is not None and not brokers and self._is_unchanged(table, known, broker):
            return known.paths
        owners = {path: _broker_of(path) for path in map(self._path, _files_of(table, snapshot))}
        paths = frozenset(
            path for path, owner in owners.items() if owner == broker or (brokers and owner not in brokers)
        )
        self._known[name, broker] = _Known(None if snapshot is None else snapshot.snapshot_id, paths)
        return paths

    def _is_unchanged(self, table: Table, known: _Known, broker: str) -> bool:
        """Return whether all snapshots since one are of other brokers."""
        snapshot = table.current_snapshot()
        while snapshot is not None:
            if snapshot.snapshot_id == known.snapshot:
                return True
            if _summary(snapshot).get(BROKER) in (broker, None):
                return False
            snapshot = _parent(table, snapshot)
        return known.snapshot is None

    def _path(self, file: DataFile) -> str:
        return file.file_path.removeprefix(self._files.location(""))

    # -- commits ------------------------------------------------------------------------------------------

    def _commit(
        self,
        table: Table,
        last: Manifest,
        added: Sequence[manifests.DataFile],
        removed: frozenset[str] | set[str],
        repairs: bool,
    ) -> Table:
        """Commit files of a broker, and return the table. Either all of it is committed or nothing."""
        summary = {STORE: last.store_id, BROKER: last.broker, NUMBER: str(last.number)}
        if repairs:
            summary[REPAIRED] = "true"
        in_buckets = [(each, self.buckets.of_file(self._files, each)) for each in added]
        gone = (
            [each for each in _files_of(table, table.current_snapshot()) if self._path(each) in removed]
            if removed
            else []
        )
        expired = self._expired(table)
        orphans = _only_in(table, expired)
        change = table.transaction()
        change.set_properties({_number_key(last.store_id): str(last.number)})
        mixed = [file for file, bucket in in_buckets if bucket is None]
        made = [
            table_file(self._files, file, change.table_metadata, bucket)
            for file, bucket in in_buckets
            if bucket is not None
        ]
        new = [each.file for each in made if not (gone and each.is_merged)]
        # New rows have a snapshot of their own: who reads what is appended leaves out those that replace files.
        if gone:
            with change.update_snapshot(snapshot_properties=summary).overwrite() as snapshot:
                for each in made:
                    if each.is_merged:
                        snapshot.append_data_file(each.file)
                for old in gone:
                    snapshot.delete_data_file(old)
        # Also without files, to say that a table is repaired.
        if new or not (added or gone):
            with change.update_snapshot(snapshot_properties=summary).merge_append() as snapshot:
                for file in new:
                    snapshot.append_data_file(file)
        if mixed:
            self._append_mixed(change, mixed, summary)
        if expired:
            ExpireSnapshots(change).by_ids(expired).commit()
        committed = change.commit_transaction()
        for path in orphans:
            self._delete(committed, path)
        return committed

    def _append_mixed(self, change: Transaction, mixed: Sequence[manifests.DataFile], summary: dict[str, str]) -> None:
        """Append files with rows of several buckets, which are partitioned by day only."""
        with change.update_spec() as spec:
            remove_bucket(spec)
        with change.update_snapshot(snapshot_properties=summary).merge_append() as snapshot:
            for file in mixed:
                snapshot.append_data_file(table_file(self._files, file, change.table_metadata, None).file)
        with change.update_spec() as spec:
            add_bucket(spec)

    def _expired(self, table: Table) -> list[int]:
        """Return the IDs of the snapshots that had a successor long enough ago; none if they are few."""
        end = self._clock() - GRACE
        snapshots = sorted(table.metadata.snapshots, key=lambda each: each.timestamp_ms)
        protected = {each.snapshot_id for each in table.metadata.refs.values()}
        expired = [
            each.snapshot_id
            for each, following in pairwise(snapshots)
            if following.timestamp_ms * 1000 < end and each.snapshot_id not in protected
        ]
        return expired if len(expired) >= _EXPIRED_MIN else []

    def _delete(self, table: Table, path: str) -> None:
        try:
            table.io.delete(path)
        except Exception as error:  # noqa: BLE001  Nobody reads the file any more; what is left takes some kilobytes.
            _LOG.warning("%s cannot be deleted: %s", mask_url(path), error)


def _number_key(store_id: str) -> str:
    """Return the property of a table with the number of the last manifest of a data directory."""
    return f"leveret.manifest.{store_id}"


def _summary(snapshot: Snapshot) -> Mapping[str, str]:
    return snapshot.summary.additional_properties if snapshot.summary is not None else {}


def _parent(table: Table, snapshot: Snapshot) -> Snapshot | None:
    return None if snapshot.parent_snapshot_id is None else table.snapshot_by_id(snapshot.parent_snapshot_id)


def _broker_of(path: str) -> str | None:
    """Return the broker of a file; None if it is not a file of the archive."""
    name = None if "://" in path else parse_data_name(path)
    return None if name is None else name.broker


def _files_of(table: Table, snapshot: Snapshot | None) -> Iterator[DataFile]:
    """Yield the files of a snapshot."""
    for each in snapshot.manifests(table.io) if snapshot is not None else ():
        for entry in each.fetch_manifest_entry(table.io, discard_deleted=True):
            yield entry.data_file


def _only_in(table: Table, expired: Sequence[int]) -> set[str]:
    """Return the paths of what only some snapshots have: their lists of manifests, and manifests."""
    if not expired:
        return set()
    gone: set[str] = set()
    left: set[str] = set()
    for each in table.metadata.snapshots:
        found = gone if each.snapshot_id in expired else left
        found.add(each.manifest_list)
        found.update(manifest.manifest_path for manifest in each.manifests(table.io))
    return gone - left
