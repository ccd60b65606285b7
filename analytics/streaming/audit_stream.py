"""Reads the audit log step by step, for the archiver."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from zlib import crc32

from leveret.analytics.errors import report_data_loss
from leveret.analytics.selection import RowLimits
from leveret.analytics.tables.partitions import AuditPartition, SnapshotLocation
from leveret.storage.audit_log import DIRECTORY, audit_files, file_name
from leveret.storage.disk.files import DiskFiles
from leveret.storage.json_records import HEAD, unpack_records
from leveret.storage.snapshots.snapshot import read_directory_format


class AuditStream:
    """Reads lines after a position: the time in the name of a file, and an offset in it.

    A file that has a successor does not grow any more, and a broker that starts begins another file. So what is before
    a position is never written again, also if the machine's end has taken lines that were read.

    Args:
        data_dir: Path of the data directory.
        vhost: Virtual hosts whose lines are wanted, as the option `vhost` names them; None for all lines.
        fail_on_data_loss: Whether it is an error that lines were removed before they could be read.
    Raises:
        DataDirectoryError: The path is not a data directory, or a newer version wrote it.
    """

    def __init__(self, data_dir: str, vhost: str | None, fail_on_data_loss: bool) -> None:
        self._files = DiskFiles()
        self._directory = f"{data_dir}/{DIRECTORY}"
        self._vhost = vhost
        self._fail_on_data_loss = fail_on_data_loss
        self._place = SnapshotLocation(data_dir, "", 0, read_directory_format(self._files, data_dir).store_id)

    def advance(self, start: dict[str, Any], limit: int) -> dict[str, Any]:
        """Return the position after some lines that follow another one.

        Args:
            limit: Maximum number of lines.
        Raises:
            AnalyticsError: Lines in between have been removed, and that is an error.
        """
        known = audit_files(self._files, self._directory)
        if known and known[0] > start["file"] > 0:
            gone = (
                f"lines of the audit log since {start['file']} (microseconds since 1970) may be gone: it was read last "
                "longer ago than audit.retention and audit.max_bytes keep them"
            )
            report_data_loss(gone, self._fail_on_data_loss)
        salt, left, at = crc32(self._place.store_id), limit, start
        for file in known:
            if file < start["file"]:
                continue
            offset = start["offset"] if file == start["file"] else 0
            octets = self._files.read_all(self._path(file)) or b""
            for found in unpack_records(octets[offset:], salt):
                offset += HEAD.size + len(found)
                left -= 1
                if not left:
                    return {"file": file, "offset": offset}
            at = {"file": file, "offset": offset}
        return at

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Iterator[AuditPartition]:
        """Yield what is between two positions."""
        for file in audit_files(self._files, self._directory) if start != end else ():
            if start["file"] <= file <= end["file"]:
                first = start["offset"] if file == start["file"] else 0
                last = end["offset"] if file == end["file"] else None
                limits, vhosts = RowLimits(), (self._vhost, None)
                yield AuditPartition(self._place, file, self._path(file), limits, vhosts, first, last)

    def _path(self, file: int) -> str:
        return f"{self._directory}/{file_name(file)}"
