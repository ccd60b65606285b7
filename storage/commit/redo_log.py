r"""The redo log: one file that is synced instead of many segments.

Small writes of a commit group to many segments are copied into it. The segments are synced later, before the redo log
is removed. After a power failure, recovery restores missing records of segments from it.

    redo/redo-<number, 10 digits>.log: consecutive frames
    frame    u32 magic "LVTR" | u32 bytes of what follows | u32 crc of that XOR crc(store id), then entries
    entry    u32 qid | u32 priority | u32 bytes | records as in the segment
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from functools import partial
from time import monotonic
from typing import Final
from zlib import crc32

from leveret.storage.disk.files import Files, must_read, write_file
from leveret.storage.format import SEGMENT_HEADER_BYTES, check_record

_MAGIC: Final = b"LVTR"
_FRAME: Final = struct.Struct("<4sII")
_ENTRY: Final = struct.Struct("<III")
#: Above this mean number of bytes per segment, writing twice costs more than syncing the segments.
_MEAN_BYTES_MAX: Final = 64 << 10

#: Octets of records by queue and priority.
RedoParts = dict[tuple[int, int], list[bytes]]


class Tail:
    """The end of a segment that is not yet synced.

    Attributes:
        qid: Number of the queue.
        priority: Priority of the store.
        path: Path of the segment.
        start: Offset of the first byte that was in no earlier commit group.
        end: Offset of the end.
        records: What was written there, without the header of the segment; None if it has to be read.
        is_released: Whether no commit group uses the segment's handle for it any more.
    """

    __slots__ = ("end", "is_released", "path", "priority", "qid", "records", "start")

    def __init__(
        self, qid: int, priority: int, path: str, start: int, end: int, records: list[bytes] | None = None
    ) -> None:
        self.qid: Final = qid
        self.priority: Final = priority
        self.path: Final = path
        self.start = start
        self.end: Final = end
        self.records = records
        self.is_released = False

    def prepend(self, earlier: Tail) -> None:
        """Add the tail that ends where this one starts."""
        self.start = earlier.start
        if earlier.records is None or self.end - self.start > _MEAN_BYTES_MAX:
            self.records = None
        elif self.records is not None:
            self.records = earlier.records + self.records

    def release(self) -> None:
        """Note that it is synced, or will not be, and free its memory."""
        self.is_released = True
        self.records = None


class RedoLog:
    """Writes the redo log. Used only by the committer's thread.

    Args:
        directory: Path of the redo log's directory.
        store_id: ID of the data directory, 16 bytes.
        min_segments: Minimum number of segments for which it is used; 0 for never.
        file_bytes: Size in bytes at which a new file is started.
        age: Age in seconds at which a new file is started.
    """

    def __init__(
        self,
        files: Files,
        directory: str,
        store_id: bytes,
        min_segments: int = 3,
        file_bytes: int = 32 << 20,
        age: float = 30.0,
    ) -> None:
        self._files = files
        self._directory = directory
        self._salt = crc32(store_id)
        self._min_segments = min_segments
        self._file_bytes = file_bytes
        self._age = age
        self._handle = -1
        self._number = 0
        self._size = 0
        self._begun = 0.0
        #: Whether its directory entry has been synced.
        self._entry_synced = False
        #: Paths of segments to sync before the file may be removed.
        self._covered: dict[str, None] = {}

    def write(self, tails: dict[int, Tail]) -> bool:
        """Write and sync the tails of segments.

        Args:
            tails: Tails by handle.
        Returns:
            False if nothing was written and the segments must be synced instead.
        Raises:
            OSError: A sync failed.
        """
        if not 0 < self._min_segments <= len(tails):
            return False
        size = 0
        for tail in tails.values():
            size += tail.end - tail.start
        if size > _MEAN_BYTES_MAX * len(tails):
            return False
        parts: list[bytes] = []
        for handle, tail in tails.items():
            records = tail.records
            if records is None:
                start = max(tail.start, SEGMENT_HEADER_BYTES)
                records = [self._files.pread(handle, tail.end - start, start)]
            length = 0
            for octets in records:
                length += len(octets)
            parts.append(_ENTRY.pack(tail.qid, tail.priority, length))
            parts += records
        payload = b"".join(parts)
        frame = _FRAME.pack(_MAGIC, len(payload), crc32(payload) ^ self._salt) + payload
        try:
            if self._handle < 0:
                self._begin()
            write_file(self._files, self._handle, frame, self._size)
        except OSError:
            # Usually no space.
            return False
        self._size += len(frame)
        self._files.fdatasync(self._handle)
        if not self._entry_synced:
            self._files.sync_directory(self._directory)
            self._entry_synced = True
        covered = self._covered
        for tail in tails.values():
            covered[tail.path] = None
        return True

    def sync_covered_if_due(self, pool: Executor | None = None) -> None:
        """If the file is large or old, sync all segments it covers and remove it.

        Args:
            pool: Executor for the syncs; None to sync in this thread.
        Raises:
            OSError: A sync failed; the file is kept.
        """
        if self._handle < 0 or (self._size < self._file_bytes and monotonic() - self._begun < self._age):
            return
        for _ in (pool.map if pool is not None else map)(self._sync, [*self._covered]):
            pass
        self.clear()

    def clear(self) -> None:
        """Remove the file: all segments have been synced."""
        if self._handle >= 0:
            self._files.close(self._handle)
            self._handle = -1
            self._files.unlink(self._path())
        self._covered.clear()

    def close(self) -> None:
        """Close the file and keep it for recovery."""
        if self._handle >= 0:
            self._files.close(self._handle)
            self._handle = -1

    def _sync(self, path: str) -> None:
        try:
            handle = self._files.open(path)
        except FileNotFoundError:
            # It was dropped, or compaction has copied its live messages to a synced file.
            return
        try:
            self._files.fdatasync(handle)
        finally:
            self._files.close(handle)

    def _begin(self) -> None:
        self._number = max([self._number, *_numbers(self._files, self._directory)]) + 1
        self._handle = self._files.open(self._path(), create=True)
        self._size = 0
        self._begun = monotonic()
        self._entry_synced = False

    def _path(self) -> str:
        return f"{self._directory}/{_name(self._number)}"


def read_redo(files: Files, directory: str, store_id: bytes, damaged: dict[str, str]) -> RedoParts:
    """Return the contents of the redo logs of an earlier run.

    Args:
        directory: Path of their directory.
        store_id: ID of the data directory.
        damaged: Receives descriptions of damage by path.
    Raises:
        UnreadableFileError: One of them cannot be read.
    """
    found: RedoParts = {}
    for number in _numbers(files, directory):
        path = f"{directory}/{_name(number)}"
        octets = must_read(path, partial(files.read_all, path)) or b""
        end = 0
        for at, payload in _frames(octets, crc32(store_id)):
            if at > end:
                damaged[path] = f"{at - end} bytes in it are not a whole frame; records in them may be lost"
            end = at + _FRAME.size + len(payload)
            for key, records in _entries(payload):
                found.setdefault(key, []).append(records)
    return found


def records_of(parts: Sequence[bytes], salt: int) -> dict[int, bytes]:
    """Return the complete records in parts of a redo log by sequence number.

    Args:
        parts: Parts of one store.
        salt: Checksum salt of the queue.
    """
    found: dict[int, bytes] = {}
    for octets in parts:
        at = 0
        while (header := check_record(octets, at, salt)) is not None:
            found[header.seq] = octets[at : at + header.rec_len]
            at += header.rec_len
    return found


def remove_redo(files: Files, directory: str) -> None:
    """Remove all redo logs, after the segments have been synced."""
    for number in _numbers(files, directory):
        files.unlink(f"{directory}/{_name(number)}")


def _frames(octets: bytes, salt: int) -> Iterator[tuple[int, bytes]]:
    """Iterate over complete frames as (offset, payload); the last frame may be incomplete after a crash."""
    at = 0
    while (at := octets.find(_MAGIC, at)) >= 0:
        if len(octets) - at < _FRAME.size:
            return
        _, length, crc = _FRAME.unpack_from(octets, at)
        payload = octets[at + _FRAME.size : at + _FRAME.size + length]
        if len(payload) == length and crc32(payload) ^ salt == crc:
            yield at, payload
            at += _FRAME.size + length
        else:
            at += 1


def _entries(payload: bytes) -> Iterator[tuple[tuple[int, int], bytes]]:
    at = 0
    while at + _ENTRY.size <= len(payload):
        qid, priority, length = _ENTRY.unpack_from(payload, at)
        at += _ENTRY.size
        yield (qid, priority), payload[at : at + length]
        at += length


def _name(number: int) -> str:
    return f"redo-{number:010d}.log"


def _numbers(files: Files, directory: str) -> list[int]:
    inner = [name.removeprefix("redo-").removesuffix(".log") for name in files.list_directory(directory)]
    return sorted(int(number) for number in inner if len(number) == 10 and number.isascii() and number.isdigit())
