"""How often files were read, written and synced, and how long that took."""

from __future__ import annotations


class FileCounts:
    """Counters, which only grow. Threads that count at the same moment may lose one.

    Attributes:
        reads: Reads from a place in a file.
        read_bytes: Bytes that they returned.
        read_seconds: How long they took.
        writes: Writes at the end of a file.
        written_bytes: Bytes that were written.
        write_seconds: How long that took.
        syncs: Times that a file's contents were brought to the disk.
        sync_seconds: How long that took.
    """

    __slots__ = (
        "read_bytes",
        "read_seconds",
        "reads",
        "sync_seconds",
        "syncs",
        "write_seconds",
        "writes",
        "written_bytes",
    )

    def __init__(self) -> None:
        self.reads = 0
        self.read_bytes = 0
        self.read_seconds = 0.0
        self.writes = 0
        self.written_bytes = 0
        self.write_seconds = 0.0
        self.syncs = 0
        self.sync_seconds = 0.0

    def read(self, octets: int, seconds: float) -> None:
        """Count a read."""
        self.reads += 1
        self.read_bytes += octets
        self.read_seconds += seconds

    def written(self, octets: int, seconds: float) -> None:
        """Count a write."""
        self.writes += 1
        self.written_bytes += octets
        self.write_seconds += seconds

    def synced(self, seconds: float) -> None:
        """Count a sync."""
        self.syncs += 1
        self.sync_seconds += seconds
