"""Whether a data directory goes on where the backups of another one have ended: of a copy, or another node."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from typing import Final

from leveret.analytics.backup.layout import DELETED, BackupError, BackupName, StoredFile
from leveret.analytics.backup.moments import ROOT, BackupFiles, shown_time
from leveret.analytics.backup.repository import Repository
from leveret.storage.directory.queue_names import read_deleted
from leveret.storage.disk.files import DiskFiles
from leveret.storage.event_log import event_files, file_name
from leveret.storage.recovery.checkpoint import read_checkpoints
from leveret.storage.segments.segment import segment_of_name
from leveret.storage.snapshots.dead import latest_cut
from leveret.storage.snapshots.segments import read_manifest
from leveret.storage.snapshots.snapshot import Snapshot

#: Seconds for which a copy may be behind the last backup, and after which is looked again.
_CATCH_UP_SECONDS: Final = 30.0
_LOOK_SECONDS: Final = 0.1


class Continuation:
    """The last backup of another data directory with the same ID, and the directory that may go on from there.

    Args:
        data_dir: The data directory.
        store_id: Its ID.
        repository: Where the backups are.
        last: The last backup.
        files: Its files by path.
    """

    def __init__(
        self,
        data_dir: str,
        store_id: bytes,
        repository: Repository,
        last: BackupName,
        files: Mapping[str, StoredFile],
    ) -> None:
        self._data_dir = data_dir
        self._store_id = store_id
        self._repository = repository
        self._last = last
        self._files = files

    def wait_for_last_cut(self) -> None:
        """Wait until the directory goes on to the last backup's moment.

        Raises:
            BackupError: It does not.
        """
        deadline = time.monotonic() + _CATCH_UP_SECONDS
        while True:
            checkpoints = read_checkpoints(DiskFiles(), f"{self._data_dir}/ckpt", [])
            cut = latest_cut(DiskFiles(), f"{self._data_dir}/events", self._store_id, checkpoints)
            if cut is not None and cut.time >= self._last.time:
                return
            if time.monotonic() > deadline:
                end = "before anything is in it" if cut is None else f"at {shown_time(cut.time)}"
                raise BackupError(
                    f"{self._data_dir} ends {end}, and the last backup in {self._repository.shown} is of "
                    f"{shown_time(self._last.time)}"
                )
            time.sleep(_LOOK_SECONDS)

    def has_last_events(self, snapshot: Snapshot) -> bool:
        """Return whether the directory has the event log of the last backup: then it has all from before its cut."""
        last = max(event_files(BackupFiles(self._repository, self._files), f"{ROOT}/events"), default=0)
        if not last:
            # Nothing had happened yet.
            return True
        found = [view.path for view in snapshot.events if view.file == last]
        if not found:
            return False
        with open(found[0], "rb") as file:
            return self._repository.is_beginning(self._files[f"events/{file_name(last)}"], file)

    def knows_all_segments(self, files: Mapping[str, StoredFile]) -> bool:
        """Return whether the last backup has no segments that the directory has never had.

        Args:
            files: What there is in the directory, by path.
        """
        known: dict[str, Collection[tuple[int, int, int]]] = {}
        deleted = {f"{each.qid:08x}" for each in read_deleted(DiskFiles(), f"{self._data_dir}/events")}
        for path in self._files.keys() - files.keys():
            directory, _, name = path.rpartition("/")
            segment = segment_of_name(name)
            if segment is None or path.startswith(f"{DELETED}/") or path[2:10] in deleted:
                continue
            if directory not in known:
                known[directory] = read_manifest(DiskFiles(), f"{self._data_dir}/{directory}").keys()
            if (segment.stream, segment.first_seq, segment.generation) not in known[directory]:
                return False
        return True
