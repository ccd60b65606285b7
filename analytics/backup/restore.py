"""Restores a data directory from a backup, as it was at a moment, or some of its queues."""

from __future__ import annotations

import os
from collections.abc import Callable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

from leveret.analytics.backup.capture import LOSSES
from leveret.analytics.backup.layout import DEFINITIONS, BackupRefusedError
from leveret.analytics.backup.moments import ROOT, BackupFiles, Moment
from leveret.analytics.backup.repository import Repository
from leveret.storage.audit_log import DIRECTORY as AUDIT
from leveret.storage.audit_log import audit_files, file_name
from leveret.storage.disk.files import DiskFiles
from leveret.storage.json_records import pack_record, read_object, unpack_records
from leveret.storage.segments.segment import segment_of_name
from leveret.storage.snapshots.segments import read_manifest
from leveret.storage.snapshots.snapshot import QueueView, Request, Snapshot, take_snapshot
from leveret.storage.snapshots.writing import Numbers, Written, merge_definitions, write_data_directory


class Restored(NamedTuple):
    """A restored data directory.

    Attributes:
        time: Its moment, in microseconds since 1970.
        written: What is in it.
        missing: Number of files that may have had messages and are not in the backup.
    """

    time: int
    written: Written
    missing: int


def selects(pattern: str | None, vhost: str | None) -> Callable[[QueueView], bool]:
    """Return whether a queue is chosen.

    Args:
        pattern: What its name must match, such as ``orders.*``; several with commas between. None for all.
        vhost: Its virtual host; None for all.
    """
    patterns = None if pattern is None else [each.strip() for each in pattern.split(",")]

    def is_chosen(queue: QueueView) -> bool:
        return (vhost is None or queue.vhost == vhost) and (
            patterns is None or any(fnmatchcase(queue.name, each) for each in patterns)
        )

    return is_chosen


def snapshot_at(moment: Moment) -> Snapshot:
    """Return a snapshot of a backup.

    Raises:
        SnapshotError: It has no cut at that time.
        OSError: A file that is needed is damaged.
    """
    request = Request(events=True, kind="", as_of=moment.time, purpose="restore")
    return take_snapshot(ROOT, request, files=moment.files)


def restore(repository: Repository, target: str, at: int | None, is_chosen: Callable[[QueueView], bool]) -> Restored:
    """Restore a data directory.

    Args:
        repository: The backup.
        target: Path of a directory that is empty or does not exist.
        at: The moment, in microseconds since 1970; None for the newest backup.
        is_chosen: Which queues get their messages; the others are empty.
    Raises:
        BackupRefusedError: The directory is not empty, or there is no backup of that time.
        AnalyticsError: The backup cannot be read.
        SnapshotError: It has nothing of that time.
        OSError: The directory cannot be written.
    """
    if os.path.exists(target) and (not os.path.isdir(target) or os.listdir(target)):
        raise BackupRefusedError(f"{target} is not an empty directory; give one that is empty or does not exist")
    moment = Moment(repository, at)
    snapshot = snapshot_at(moment)
    files = DiskFiles()
    os.makedirs(target, 0o750, exist_ok=True)
    losses = moment.files.read_all(f"{ROOT}/{LOSSES}") if moment.is_backup else None
    if losses is not None:
        _write_private(Path(target, LOSSES), losses)
    damaged = _write_audit(moment, snapshot.store_id, Path(target))
    written = write_data_directory(files, target, snapshot, _reader(moment.files), _numbers(moment), is_chosen)
    written.damaged += damaged
    _write_definitions(repository, moment, snapshot, Path(target))
    _sync(target)
    return Restored(snapshot.cut.time, written, snapshot.missing_segments)


def _write_definitions(repository: Repository, moment: Moment, snapshot: Snapshot, target: Path) -> None:
    before, *after = dict.fromkeys(moment.definitions_at(snapshot.cut.time))
    path = target / DEFINITIONS
    _write_private(path, repository.read(before))
    # A segment that was linked may have only what came later; those that were written have what was there.
    numbers = {int(each.relative_to(target).parts[1], 16) for each in target.glob("q/*/**/*.seg")}
    for file in after:
        later = target / f"{DEFINITIONS}.later"
        _write_private(later, repository.read(file))
        merge_definitions(path, later, numbers.__contains__)
        for each in target.glob(f"{DEFINITIONS}*"):
            if each != path:
                each.unlink()


def _write_audit(moment: Moment, store_id: bytes, target: Path) -> list[str]:
    """Write the audit log up to the moment; of a backup, all that it has. Return a line for each damaged file."""
    salt, damaged = crc32(store_id), []
    (target / AUDIT).mkdir(0o750)
    for time_us in audit_files(moment.files, f"{ROOT}/{AUDIT}"):
        try:
            octets = moment.files.read_all(f"{ROOT}/{AUDIT}/{file_name(time_us)}") or b""
        except OSError as error:
            damaged.append(str(error))
            continue
        found = unpack_records(octets, salt)
        kept = [each for each in found if moment.is_backup or read_object(each).get("at", 0) <= moment.time]
        if kept:
            _write_private(target / AUDIT / file_name(time_us), b"".join(pack_record(each, salt) for each in kept))
    return damaged


def _reader(files: BackupFiles) -> Callable[[str], bytes]:
    def read(path: str) -> bytes:
        octets = files.read_all(path)
        if octets is None:
            raise OSError(f"{path.removeprefix(ROOT).lstrip('/')} is not in the backup")
        return octets

    return read


def _numbers(moment: Moment) -> Numbers:
    """Return the numbers that were given until the newest backup."""
    files = moment.newest_files
    next_seqs: dict[tuple[int, int], int] = {}
    next_qid = 1
    for name in files.list_directory(f"{ROOT}/q"):
        qid, directory = int(name, 16), f"{ROOT}/q/{name}"
        next_qid = max(next_qid, qid + 1)
        next_seqs[qid, 0] = _next_seq(files, directory)
        for entry in files.list_directory(directory):
            if len(entry) == 4 and entry[0] == "p" and entry[1:].isdigit():
                next_seqs[qid, int(entry[1:])] = _next_seq(files, f"{directory}/{entry}")
    return Numbers(next_seqs, next_qid)


def _next_seq(files: BackupFiles, directory: str) -> int:
    """Return a number above all that a store has given."""
    numbers = [0]
    for known in read_manifest(files, directory).values():
        numbers += (known.edit.last_seq, known.edit.first_seq)
    for name in files.list_directory(directory):
        segment = segment_of_name(name)
        if segment is not None:
            # One that is not full has at most 65,536 records, and numbers are skipped by a million.
            numbers.append(segment.first_seq + (1 << 16))
    return max(numbers) + 1


def _write_private(path: Path, octets: bytes) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with open(handle, "wb") as file:
        file.write(octets)


def _sync(target: str) -> None:
    """Sync all files and directories, the target's entry last."""
    for directory, _, names in os.walk(target, topdown=False):
        for path in (*(os.path.join(directory, name) for name in names), directory):
            handle = os.open(path, os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)
