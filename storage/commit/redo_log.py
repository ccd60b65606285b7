r"""The redo log: one file that is synced in the place of many segments.

What a commit group has of many segments, a little of each, is copied into it. The segments are synced later, all that
it speaks of, before it is removed. After a loss of power recovery takes from it what segments lack.

    redo/redo-<number, 10 digits>.log: frames, one behind the other
    frame    u32 magic "LVTR" | u32 bytes of what follows | u32 crc of that XOR crc(store id), then entries
    entry    u32 qid | u32 priority | u32 bytes | records as they stand in the segment
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor
from time import monotonic
from typing import Final, NamedTuple
from zlib import crc32

from leveret.storage.disk.files import Files, write_file
from leveret.storage.format import SEGMENT_HEADER_BYTES, check_record

_MAGIC: Final = b"LVTR"
_FRAME: Final = struct.Struct("<4sII")
_ENTRY: Final = struct.Struct("<III")
#: Where there is more than this of a segment on average, writing it twice costs more than syncing it does.
_MUCH: Final = 64 << 10

#: Octets of records by queue and priority.
RedoParts = dict[tuple[int, int], list[bytes]]


class Tail(NamedTuple):
    """The end of a segment that is not on the disk yet.

    Attributes:
        qid: Number of the queue.
        priority: Priority of the store.
        path: The file.
        start: Offset of what no commit group has had before.
        end: Offset of its end.
    """

    qid: int
    priority: int
    path: str
    start: int
    end: int


class RedoLog:
    """Writes the redo log. It is used by one thread, the committer's.

    Args:
        files: The seam to the operating system.
        directory: Where it is.
        store_id: 16 bytes that name the data directory.
        least_segments: Segments from which on it is worth while; 0 for never.
        file_bytes: It is begun again once it is so long,
        age: or so old, in seconds.
    """

    def __init__(
        self,
        files: Files,
        directory: str,
        store_id: bytes,
        least_segments: int = 3,
        file_bytes: int = 32 << 20,
        age: float = 30.0,
    ) -> None:
        self._files = files
        self._directory = directory
        self._salt = crc32(store_id)
        self._least_segments = least_segments
        self._file_bytes = file_bytes
        self._age = age
        self._handle = -1
        self._number = 0
        self._size = 0
        self._begun = 0.0
        #: Its name is on the disk.
        self._is_named = False
        #: Segments that are to be synced before it may go.
        self._covered: dict[str, None] = {}

    def write(self, tails: Mapping[int, Tail]) -> bool:
        """Put the ends of segments on the disk.

        Args:
            tails: By handle.
        Returns:
            False if nothing was done: it is better to sync the segments.
        Raises:
            OSError: A sync failed.
        """
        if not 0 < self._least_segments <= len(tails):
            return False
        if sum([tail.end - tail.start for tail in tails.values()]) > _MUCH * len(tails):
            return False
        parts: list[bytes] = []
        for handle, (qid, priority, _, start, end) in tails.items():
            start = max(start, SEGMENT_HEADER_BYTES)
            octets = self._files.pread(handle, end - start, start)
            parts += (_ENTRY.pack(qid, priority, len(octets)), octets)
        payload = b"".join(parts)
        frame = _FRAME.pack(_MAGIC, len(payload), crc32(payload) ^ self._salt) + payload
        try:
            if self._handle < 0:
                self._begin()
            write_file(self._files, self._handle, frame, self._size)
        except OSError:
            # No room, as a rule.
            return False
        self._size += len(frame)
        self._files.fdatasync(self._handle)
        if not self._is_named:
            self._files.sync_directory(self._directory)
            self._is_named = True
        self._covered |= dict.fromkeys([tail.path for tail in tails.values()])
        return True

    def settle_if_due(self, pool: Executor | None = None) -> None:
        """If it is long or old, sync all segments that it speaks of, and begin again.

        Args:
            pool: Threads to sync in; None to do it here.
        Raises:
            OSError: A sync failed; it is kept.
        """
        if self._handle < 0 or (self._size < self._file_bytes and monotonic() - self._begun < self._age):
            return
        for _ in (pool.map if pool is not None else map)(self._sync, [*self._covered]):
            pass
        self.clear()

    def clear(self) -> None:
        """Remove it: all segments have been synced."""
        if self._handle >= 0:
            self._files.close(self._handle)
            self._handle = -1
            self._files.unlink(self._path())
        self._covered.clear()

    def close(self) -> None:
        """Close the file; it stays, for recovery to read."""
        if self._handle >= 0:
            self._files.close(self._handle)
            self._handle = -1

    def _sync(self, path: str) -> None:
        try:
            handle = self._files.open(path)
        except FileNotFoundError:
            # Nothing in it lives on, or it has been copied to where that has been synced.
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
        self._is_named = False

    def _path(self) -> str:
        return f"{self._directory}/{_name(self._number)}"


def read_redo(files: Files, directory: str, store_id: bytes, damaged: dict[str, str]) -> RedoParts:
    """All that the redo logs of an earlier run hold.

    Args:
        files: The seam to the operating system.
        directory: Where they are.
        store_id: Names the data directory.
        damaged: Is told what is wrong with which file.
    """
    found: RedoParts = {}
    for number in _numbers(files, directory):
        path = f"{directory}/{_name(number)}"
        try:
            octets = files.read_all(path) or b""
        except OSError as error:
            damaged[path] = f"cannot be read: {error}"
            continue
        end = 0
        for at, payload in _frames(octets, crc32(store_id)):
            if at > end:
                damaged[path] = f"{at - end} bytes in it are no whole frame; what they hold may be lost"
            end = at + _FRAME.size + len(payload)
            for key, records in _entries(payload):
                found.setdefault(key, []).append(records)
    return found


def records_of(parts: Sequence[bytes], salt: int) -> dict[int, bytes]:
    """The whole records in parts of a redo log, by sequence number.

    Args:
        parts: Of one store.
        salt: The queue's.
    """
    found: dict[int, bytes] = {}
    for octets in parts:
        at = 0
        while (header := check_record(octets, at, salt)) is not None:
            found[header.seq] = octets[at : at + header.rec_len]
            at += header.rec_len
    return found


def remove_redo(files: Files, directory: str) -> None:
    """Remove all redo logs: what they hold is in segments that have been synced."""
    for number in _numbers(files, directory):
        files.unlink(f"{directory}/{_name(number)}")


def _frames(octets: bytes, salt: int) -> Iterator[tuple[int, bytes]]:
    """Whole frames, as offset and payload; the last write of an earlier run may have been cut short."""
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
