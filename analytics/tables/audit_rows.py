"""The table `audit`: the lines of the audit log, which need no snapshot, as its files only grow."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any, Final

from leveret.analytics.data_files import open_files
from leveret.analytics.options import Options
from leveret.analytics.selection import Selection
from leveret.analytics.tables.event_batches import readable
from leveret.analytics.tables.partitions import AuditPartition, SnapshotLocation, vhosts_of
from leveret.storage.audit_log import DIRECTORY, LATE, audit_files, file_name
from leveret.storage.json_records import read_object, unpack_records
from leveret.storage.snapshots.snapshot import read_directory_format

#: A time after all others, in microseconds since 1970.
_END: Final = 2**63 - 1
#: The position before the first line of the log: the time in the name of a file, and an offset in the file.
START: Final = {"file": 0, "offset": 0}


def audit_partitions(options: Options, selection: Selection, session: str = "") -> Iterator[AuditPartition]:
    """Yield the files of the audit log, without those outside of the limits on times.

    Raises:
        DataDirectoryError: The path is not a data directory, or a newer version wrote it.
        AnalyticsError: Neither PyArrow nor fsspec can open the URI.
    """
    files, path = open_files(options.path)
    store_id = read_directory_format(files, path).store_id
    as_of = _END if options.as_of is None else options.as_of
    limits = selection.limits._replace(last_time=min(selection.limits.last_time, as_of))
    place = SnapshotLocation(options.path, "", 0, store_id, session)
    known = audit_files(files, f"{path}/{DIRECTORY}")
    for first, end in pairwise([*known, _END]):
        if first - LATE <= limits.last_time and end >= limits.first_time:
            location = f"{path}/{DIRECTORY}/{file_name(first)}"
            yield AuditPartition(place, first, location, limits, vhosts_of(options, selection))


def audit_beside_archive(
    options: Options, selection: Selection, position: Mapping[str, Any], copied: str | None
) -> Iterator[AuditPartition]:
    """Yield the parts of the audit log that an archive does not have.

    Args:
        position: Up to where the archiver has read the log; see START.
        copied: Virtual hosts whose lines it copies, as the option `vhost` names them; None for all lines.
    Raises:
        DataDirectoryError, AnalyticsError: As audit_partitions() does.
    """
    for part in audit_partitions(options, selection):
        offset = position["offset"] if part.file == position["file"] else 0
        if part.file >= position["file"]:
            yield replace(part, start=offset)
        if copied is not None and part.file <= position["file"]:
            yield replace(part, end=offset or None, but=copied)


def audit_rows(octets: bytes, salt: int, partition: AuditPartition) -> list[dict[str, Any]]:
    """Return the rows of a file, or of a part of it."""
    found = (read_object(each) for each in unpack_records(octets, salt))
    return [_row(record) for record in found if partition.wants(record)]


def _row(record: Mapping[str, Any]) -> dict[str, Any]:
    texts = {name: readable(record.get(name)) for name in ("kind", "host", "vhost", "object")}
    return {
        **texts,
        "at": record["at"],
        "event_at": record["at"],
        "user_name": readable(record["user"]),
        "consequence": record.get("broker", False),
        "messages": record.get("count"),
        "details": json.dumps(record.get("details", {})),
    }
