"""Leases: keep the hard links of a snapshot from being removed while they are read.

A snapshot is a directory `snap/<32 hexadecimal digits>/` with a file LEASE in it. The modification time of that file is
the last heartbeat; its contents include the timeout without a heartbeat.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import stat
import time
from math import inf
from typing import Final
from uuid import uuid4

from leveret.storage.disk.files import DiskFiles

#: Name of the directory for snapshots in the data directory.
SNAPSHOTS: Final = "snap"
LEASE_FILE: Final = "LEASE"
#: What the names of links to segments begin with.
LINKS: Final = "q"
#: Seconds without a heartbeat after which a snapshot may be removed.
TIMEOUT: Final = 600.0
#: Longest lease that is read, in bytes.
_LIMIT: Final = 64 << 10
#: Minimum seconds between two heartbeats.
_HEARTBEAT_SECONDS: Final = 5.0


class SnapshotLease:
    """A snapshot's directory and the right to use it.

    Args:
        path: The snapshot's directory.
    """

    __slots__ = ("_renewed_at", "path")

    def __init__(self, path: str) -> None:
        self.path = path
        self._renewed_at = 0.0

    def renew(self) -> bool:
        """Send a heartbeat if one is due; return False if the lease no longer exists. Cheap to call often."""
        now = time.monotonic()
        if now - self._renewed_at < _HEARTBEAT_SECONDS:
            return True
        try:
            os.utime(f"{self.path}/{LEASE_FILE}")
        except OSError:
            return False
        self._renewed_at = now
        return True

    def release(self) -> None:
        """Remove the snapshot, if it exists."""
        shutil.rmtree(self.path, ignore_errors=True)


def take_lease(data_directory: str, purpose: str, timeout: float = TIMEOUT) -> SnapshotLease:
    """Create the directory of a new snapshot.

    Args:
        data_directory: Path of the data directory.
        purpose: Description of the reader, for information.
        timeout: Seconds without a heartbeat after which the snapshot may be removed.
    Raises:
        OSError: It could not be created.
    """
    path = f"{data_directory}/{SNAPSHOTS}/{uuid4().hex}"
    # Contains hard links to messages: only for the user who may read the data.
    os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
    os.mkdir(path, 0o700)
    fields = {
        "purpose": purpose,
        "timeout": timeout,
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "created": time.time(),
    }
    with open(f"{path}/{LEASE_FILE}", "w", encoding="utf-8") as file:
        json.dump(fields, file)
    return SnapshotLease(path)


def remove_dead_snapshots(data_directory: str, now: float | None = None, include_active: bool = False) -> int:
    """Remove the snapshots whose leases have timed out. Never raises; what is no directory in their place stays.

    Called by the broker's housekeeping, in a thread that may block, and by readers.

    Args:
        data_directory: Path of the data directory.
        now: Seconds since 1970; None for the present.
        include_active: Also remove snapshots in use, because the disk is full. Their readers fail with a clear error.
    Returns:
        Number of snapshots removed.
    """
    now = time.time() if now is None else now
    removed = 0
    try:
        with os.scandir(f"{data_directory}/{SNAPSHOTS}") as entries:
            # Removing the tree of a pipe would wait until somebody writes to it.
            paths = [each.path for each in entries if each.is_dir(follow_symlinks=False)]
    except OSError:
        return 0
    for path in paths:
        if include_active or _is_dead(path, now):
            shutil.rmtree(path, ignore_errors=True)
            removed += not os.path.exists(path)
    return removed


def _is_dead(path: str, now: float) -> bool:
    lease = f"{path}/{LEASE_FILE}"
    try:
        status = os.lstat(lease)
        is_lease = stat.S_ISREG(status.st_mode) and status.st_size <= _LIMIT
        renewed_at, timeout = status.st_mtime, _timeout_of(lease) if is_lease else TIMEOUT
    except FileNotFoundError:
        # It is being created or removed.
        try:
            renewed_at, timeout = os.stat(path).st_mtime, TIMEOUT
        except OSError:
            return False
    except OSError:
        return False
    return now - renewed_at > timeout


def _timeout_of(lease: str) -> float:
    """Return the timeout that a lease says; the default if it is damaged.

    Raises:
        OSError: It cannot be read.
    """
    octets = DiskFiles().read_foreign(lease, _LIMIT)
    try:
        timeout = json.loads(octets or b"")["timeout"]
        return float(timeout) if 0 <= timeout < inf else TIMEOUT
    except (ValueError, KeyError, TypeError, RecursionError, OverflowError):
        return TIMEOUT
