"""Taking snapshots for queries: one for each, or one that several of them share."""

from __future__ import annotations

import logging
import os
import pickle
from collections.abc import Callable
from dataclasses import replace
from typing import Final
from uuid import uuid4

from leveret.storage.analytics.data_files import absolute, open_files
from leveret.storage.analytics.errors import AnalyticsError
from leveret.storage.analytics.options import Options
from leveret.storage.snapshots.lease import TIMEOUT
from leveret.storage.snapshots.reader import DamagedRecordError
from leveret.storage.snapshots.snapshot import NoSuchQueueError, Request, Snapshot, take_snapshot

_LOG: Final = logging.getLogger(__name__)
#: In a session's directory: snapshots that queries share. What is beside it are paths of leases.
_SHARED: Final = "shared"

#: Tells of virtual host and name whether a queue is wanted.
Wants = Callable[[str, str], bool]


def take(options: Options, wants: Wants, described: str | None, messages: bool, events: bool, session: str) -> Snapshot:
    """Take a snapshot, and note it for the process that renews it.

    Args:
        options: What is asked for.
        wants: Which queues.
        described: The queue that has to be there; None if there need be none.
        messages: Whether messages are to be read.
        events: Whether events are.
        session: The session's directory; empty for none.
    Raises:
        DataDirectoryError: It is not a data directory, or was written by a newer version.
        SnapshotError: No snapshot can be taken, or there is no such queue.
        DamagedRecordError: Something of that moment is damaged or gone, and that is not to be skipped.
    """
    files, path = open_files(options.path)
    request = Request(
        messages=messages,
        events=events,
        as_of=options.as_of,
        wanted=wants,
        described=described,
        purpose=f"analytics, table {options.table}",
        timeout=options.lease_seconds or TIMEOUT,
    )
    snapshot = take_snapshot(path, request, files)
    if snapshot.missing_segments or snapshot.damaged_events:
        text = (
            f"{options.path}: {snapshot.missing_segments} segment files of that moment are gone, and "
            f"{snapshot.damaged_events} events are damaged"
        )
        if options.fail_fast:
            snapshot.close()
            raise DamagedRecordError(text)
        _LOG.warning("%s", text)
    if snapshot.lease is not None and session:
        with open(os.path.join(session, uuid4().hex), "w", encoding="utf-8") as file:
            file.write(snapshot.lease.path)
    return snapshot


def share(options: Options, session: str) -> str:
    """Take a snapshot of messages and events for several queries; return what to call it in their options."""
    options = replace(options, path=absolute(options.path))
    snapshot = take(options, options.wants, options.described, True, True, session)
    name = uuid4().hex
    os.makedirs(os.path.join(session, _SHARED), 0o700, exist_ok=True)
    with open(os.path.join(session, _SHARED, name), "wb") as file:
        pickle.dump((options.path, options.as_of, snapshot), file)
    return name


def shared(options: Options, wants: Wants, described: str | None, session: str) -> Snapshot:
    """The snapshot that the options name, and of it the queues that are wanted.

    Raises:
        AnalyticsError: There is no such snapshot.
        NoSuchQueueError: No queue has the name.
    """
    path = os.path.join(session, _SHARED, options.snapshot)
    if not session or not options.snapshot.isalnum() or not os.path.exists(path):
        raise AnalyticsError(f"there is no snapshot '{options.snapshot}' in this session; see Session.snapshot()")
    with open(path, "rb") as file:
        # Written by this session, into a directory of its own.
        location, as_of, found = pickle.load(file)
    if location != absolute(options.path):
        raise AnalyticsError(f"snapshot '{options.snapshot}' is one of {location}, not of {options.path}")
    if options.as_of not in (None, as_of):
        raise AnalyticsError(f"snapshot '{options.snapshot}' was not taken with this asOf; say one of the two")
    snapshot: Snapshot = replace(found, queues=[each for each in found.queues if wants(each.vhost, each.name)])
    if described is not None and not any(wants(each.vhost, each.name) for each in snapshot.names.values()):
        raise NoSuchQueueError(f"{options.path} has no queue {described}")
    return snapshot
