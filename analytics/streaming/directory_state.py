"""Whether anything has become visible in a data directory, without a look at its queues."""

from __future__ import annotations

import os
from typing import NamedTuple


class _File(NamedTuple):
    """A file as it was looked at."""

    name: str
    size: int
    changed: int


class DirectoryState(NamedTuple):
    """What changes whenever a later snapshot may have more: a snapshot ends at the last tick of the event log.

    Attributes:
        events: The last file of the event log.
        checkpoints: Files of checkpoints: without events, a snapshot ends at the last one.
    """

    events: _File
    checkpoints: tuple[_File, ...]


def directory_state(path: str) -> DirectoryState | None:
    """Look at a data directory.

    Args:
        path: The directory.
    Returns:
        Its state, to be compared with an earlier one; None if it cannot be told.
    """
    try:
        # Names have the time of their first event, with leading zeros.
        last = max(os.listdir(f"{path}/events"))
        checkpoints = sorted(os.listdir(f"{path}/ckpt"))
        return DirectoryState(
            _look(f"{path}/events", last), tuple([_look(f"{path}/ckpt", name) for name in checkpoints])
        )
    except (OSError, ValueError):
        # There are no events yet, or a checkpoint is just being replaced.
        return None


def _look(directory: str, name: str) -> _File:
    status = os.stat(f"{directory}/{name}")
    return _File(name, status.st_size, status.st_mtime_ns)
