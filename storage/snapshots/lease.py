"""Leases: what keeps the hard links of a snapshot from being removed while somebody reads them.

A snapshot is a directory `snap/<32 hexadecimal digits>/` with a file LEASE in it. The time at which that file was last
touched is the heartbeat; the file says how long the snapshot may be kept without one.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import time
from typing import Any, Final
from uuid import uuid4

#: Name of the directory, inside the data directory, that snapshots are in.
SNAPSHOTS: Final = "snap"
LEASE_FILE: Final = "LEASE"
#: Seconds without a heartbeat after which a snapshot may be removed.
TIMEOUT: Final = 600.0
#: A heartbeat is left out if the last one is not so many seconds old.
_BEAT: Final = 5.0


class SnapshotLease:
    """A snapshot's directory and the right to use it.

    Args:
        path: The snapshot's directory.
    """

    __slots__ = ("_beaten", "path")

    def __init__(self, path: str) -> None:
        self.path = path
        self._beaten = 0.0

    def renew(self) -> bool:
        """Give a heartbeat; cheap enough to be called often. Return whether the lease is still there."""
        now = time.monotonic()
        if now - self._beaten < _BEAT:
            return True
        try:
            os.utime(f"{self.path}/{LEASE_FILE}")
        except OSError:
            return False
        self._beaten = now
        return True

    def release(self) -> None:
        """Remove the snapshot; nothing happens if it is gone."""
        shutil.rmtree(self.path, ignore_errors=True)


def take_lease(data_directory: str, purpose: str, timeout: float = TIMEOUT) -> SnapshotLease:
    """Make the directory of a new snapshot.

    Args:
        data_directory: Where the broker keeps its data.
        purpose: Who reads, for people who look at the file.
        timeout: Seconds without a heartbeat after which the snapshot may be removed.
    Raises:
        OSError: It could not be made.
    """
    path = f"{data_directory}/{SNAPSHOTS}/{uuid4().hex}"
    # Hard links to messages: for whoever may read the data, and nobody else.
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


def remove_dead_snapshots(data_directory: str, now: float | None = None, all_of_them: bool = False) -> int:
    """Remove the snapshots whose readers have gone; never raises.

    It is for the broker's housekeeping, in a thread that may wait for the disk, and for readers.

    Args:
        data_directory: Where the broker keeps its data.
        now: Seconds since 1970; None for the present.
        all_of_them: Also those in use: the disk is short. Their readers fail with a clear error.
    Returns:
        How many were removed.
    """
    now = time.time() if now is None else now
    removed = 0
    try:
        names = os.listdir(f"{data_directory}/{SNAPSHOTS}")
    except OSError:
        return 0
    for name in names:
        path = f"{data_directory}/{SNAPSHOTS}/{name}"
        if all_of_them or _is_dead(path, now):
            shutil.rmtree(path, ignore_errors=True)
            removed += not os.path.exists(path)
    return removed


def _is_dead(path: str, now: float) -> bool:
    lease = f"{path}/{LEASE_FILE}"
    try:
        beaten = os.stat(lease).st_mtime
        timeout = _timeout_of(lease)
    except FileNotFoundError:
        # It is about to be made, or half removed.
        try:
            beaten, timeout = os.stat(path).st_mtime, TIMEOUT
        except OSError:
            return False
    except OSError:
        return False
    return now - beaten > timeout


def _timeout_of(lease: str) -> float:
    try:
        with open(lease, encoding="utf-8") as file:
            fields: dict[str, Any] = json.load(file)
        return max(0.0, float(fields["timeout"]))
    except (ValueError, KeyError, TypeError):
        return TIMEOUT
