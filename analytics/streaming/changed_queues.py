"""Whether anything has become visible in a data directory, without a look at its queues."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable
from typing import Final

from leveret.storage.snapshots.lease import LEASE_FILE, SnapshotLease
from leveret.storage.snapshots.snapshot import FileState, Snapshot, file_state

#: File systems of this machine. Others may show for a while how a file was.
_LOCAL: Final = frozenset({"bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "overlay", "tmpfs", "xfs", "zfs"})
_MOUNTS: Final = "/proc/self/mountinfo"
_OCTAL: Final = re.compile(r"\\([0-7]{3})")


class ChangedQueues:
    """Remembers the queues that one query has read to their ends."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._is_exact = file_system_of(os.path.realpath(path), _read_mounts()) in _LOCAL
        #: States of the files of each queue that was read to its end, by path.
        self._settled: dict[int, dict[str, FileState]] = {}
        #: States of the files that are just being looked at; None for one that was not there.
        self._looked: dict[int, dict[str, FileState | None]] = {}
        #: Time of the file system, in nanoseconds since 1970, when the look began.
        self._now = 0

    def among(self, qids: Collection[int]) -> set[int]:
        """Return those of some queues that may have something new; the others have nothing."""
        for gone in self._settled.keys() - qids:
            del self._settled[gone]
        return {qid for qid in qids if not self._is_settled(qid)}

    def _is_settled(self, qid: int) -> bool:
        states = self._settled.get(qid)
        return states is not None and all(file_state(path) == state for path, state in states.items())

    def begin(self, qids: Iterable[int], lease: SnapshotLease | None) -> None:
        """Note the directories of queues, before their files are looked at.

        Args:
            lease: Lease of the snapshot, just made; None if it has none.
        """
        made = file_state(f"{lease.path}/{LEASE_FILE}") if lease is not None else None
        self._now = made.changed if made is not None and self._is_exact else 0
        self._looked = {qid: self._directories(qid) for qid in qids}
        for qid in self._looked:
            self._settled.pop(qid, None)

    def note_open(self, snapshot: Snapshot) -> None:
        """Note the segments that messages may still be appended to, before they are read.

        Args:
            snapshot: A snapshot of the queues of begin().
        """
        for queue in snapshot.queues:
            states = self._looked[queue.qid]
            for store in queue.stores:
                directory = self._directory(queue.qid, store.priority)
                for view in store.segments:
                    if not view.sealed:
                        # A link to the same file, which may be elsewhere by now.
                        states[f"{directory}/{view.file_name}"] = file_state(view.path)

    def settle(self, qid: int) -> None:
        """Note that a queue has nothing that was not read, as far as its files had it when they were noted.

        Args:
            qid: Number of the queue, one of begin().
        """
        states = self._looked.pop(qid)
        known = {path: state for path, state in states.items() if state is not None and state.changed < self._now}
        if len(known) == len(states):
            self._settled[qid] = known

    def forget(self) -> None:
        """Forget everything: the query goes on elsewhere."""
        self._settled.clear()

    def _directory(self, qid: int, priority: int) -> str:
        return f"{self._path}/q/{qid:08x}" + (f"/p{priority:03d}" if priority else "")

    def _directories(self, qid: int) -> dict[str, FileState | None]:
        """Return the states of the directories of the stores of a queue."""
        directory = self._directory(qid, 0)
        # Before it is listed: what comes later changes it.
        states = {directory: file_state(directory)}
        try:
            names = os.listdir(directory)
        except OSError:
            return states
        # Those of further priorities: p001 to p255.
        return states | {
            path: file_state(path) for path in (f"{directory}/{name}" for name in names if name[:1] == "p")
        }


def _read_mounts() -> str:
    try:
        with open(_MOUNTS, encoding="utf-8") as file:
            return file.read()
    except OSError:
        return ""


def file_system_of(path: str, mounts: str) -> str:
    """Return the type of the file system that a path is on; empty if that is not known.

    Args:
        path: An absolute path without links.
    """
    found = "", ""
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        fields, kinds = before.split(" "), after.split(" ")
        if len(fields) > 4:
            # Blanks and the like are written in octal digits.
            where = _OCTAL.sub(lambda found: chr(int(found[1], 8)), fields[4])
            is_below = where == "/" or path == where or path.startswith(f"{where}/")
            if is_below and len(where) >= len(found[0]):
                found = where, kinds[0]
    return found[1]


def directory_state(path: str) -> object:
    """Look at a data directory.

    Returns:
        What changes whenever a later snapshot may have more, as a snapshot ends at the last tick of the event log: the
        names and states of its newest file and of the checkpoints. None if it cannot be told.
    """
    try:
        # Names have the time of their first event, with leading zeros.
        events = f"{path}/events/{max(os.listdir(f'{path}/events'))}"
        paths = [events, *(f"{path}/ckpt/{name}" for name in sorted(os.listdir(f"{path}/ckpt")))]
    except (OSError, ValueError):
        # There are no events yet.
        return None
    states = [(each, file_state(each)) for each in paths]
    # A checkpoint may just be being replaced.
    return None if any(state is None for _, state in states) else states
