"""Counters of file reads, writes and syncs."""

from __future__ import annotations


class FileCounts:
    """Monotonic counters. Not locked: a concurrent increment may be lost.

    Attributes:
        reads: Number of reads.
        read_bytes: Bytes read.
        read_seconds: Time spent reading.
        writes: Number of writes.
        written_bytes: Bytes written.
        write_seconds: Time spent writing.
        syncs: Number of syncs.
        sync_seconds: Time spent syncing.
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
