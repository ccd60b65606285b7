r"""Frames: operations of a leader as bytes.

frame      4s magic "LVRF" | u16 version | u16 zero | u64 epoch | u64 number of the first operation
| u32 operations | u32 bytes of what follows | u32 crc of everything else, then operations
operation  u8 kind | u16 bytes of the path | u64 offset | u32 bytes of the octets | path | octets
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final
from zlib import crc32

from leveret.storage.disk.recording import Kind, Operation

#: Version of frames and of the link. A newer standby follows an older leader; a leader refuses older standbys.
VERSION: Final = 1
_MAGIC: Final = b"LVRF"
_HEADER: Final = struct.Struct("<4sHHQQII")
_CRC: Final = struct.Struct("<I")
_OPERATION: Final = struct.Struct("<BHQI")
HEADER_BYTES: Final = _HEADER.size + _CRC.size
#: Largest frame that is accepted, in bytes; larger turns are several frames.
FRAME_MAX: Final = 64 << 20
#: The same files are appended to again and again.
_encode: Final = lru_cache(4096)(os.fsencode)


class FrameError(Exception):
    """Bytes are no frame, or not the expected one; the text says why."""


@dataclass(frozen=True, slots=True)
class Frame:
    """Operations with consecutive numbers.

    Attributes:
        epoch: Epoch of the leader that recorded them.
        first: Number of the first one.
        count: Number of operations.
        octets: The whole frame.
    """

    epoch: int
    first: int
    count: int
    octets: bytes

    @property
    def last(self) -> int:
        """Number of the last operation."""
        return self.first + self.count - 1

    def operations(self) -> Iterator[Operation]:
        """Decode the operations.

        Raises:
            FrameError: They are malformed.
        """
        octets, at, found = memoryview(self.octets), HEADER_BYTES, 0
        while at < len(octets):
            if at + _OPERATION.size > len(octets):
                raise FrameError("an operation is cut off")
            kind, path_bytes, offset, size = _OPERATION.unpack_from(octets, at)
            at += _OPERATION.size
            end = at + path_bytes + size
            if end > len(octets):
                raise FrameError("an operation is cut off")
            path = os.fsdecode(bytes(octets[at : at + path_bytes]))
            try:
                yield Operation(Kind(kind), path, offset, bytes(octets[at + path_bytes : end]))
            except ValueError:
                raise FrameError(f"operation {self.first + found} is of unknown kind {kind}") from None
            found += 1
            at = end
        if found != self.count:
            raise FrameError(f"it has {found} operations and says {self.count}")


def pack_frames(epoch: int, first: int, operations: Sequence[Operation], limit: int = FRAME_MAX) -> Iterator[Frame]:
    """Encode operations, as one frame if they fit.

    Args:
        epoch: Epoch of the leader.
        first: Number of the first operation.
        operations: The operations.
        limit: Largest frame in bytes, unless a single operation is larger.
    """
    parts: list[bytes] = []
    size = count = 0
    for kind, path, offset, octets in operations:
        name = _encode(path)
        if size and size + len(octets) > limit - HEADER_BYTES:
            yield _pack(epoch, first, count, size, parts)
            first += count
            parts, size, count = [], 0, 0
        parts += (_OPERATION.pack(kind, len(name), offset, len(octets)), name, octets)
        size += _OPERATION.size + len(name) + len(octets)
        count += 1
    if count:
        yield _pack(epoch, first, count, size, parts)


def _pack(epoch: int, first: int, count: int, size: int, parts: list[bytes]) -> Frame:
    header, body = _HEADER.pack(_MAGIC, VERSION, 0, epoch, first, count, size), b"".join(parts)
    return Frame(epoch, first, count, header + _CRC.pack(crc32(body, crc32(header))) + body)


def body_bytes(header: bytes) -> int:
    """Return the number of bytes that follow the header of a frame.

    Raises:
        FrameError: It is no header of a frame of this version.
    """
    magic, version, _, _, _, _, size = _HEADER.unpack_from(header)
    if magic != _MAGIC:
        raise FrameError("it does not begin as a frame does")
    if version != VERSION:
        raise FrameError(f"it has version {version}, and this node knows version {VERSION}")
    return int(size)


def unpack_frame(octets: bytes) -> Frame:
    """Decode a whole frame; its operations are decoded later.

    Raises:
        FrameError: It is damaged.
    """
    size = body_bytes(octets)
    if len(octets) != HEADER_BYTES + size:
        raise FrameError("its length is wrong")
    (crc,) = _CRC.unpack_from(octets, _HEADER.size)
    if crc32(memoryview(octets)[HEADER_BYTES:], crc32(octets[: _HEADER.size])) != crc:
        raise FrameError("its checksum is wrong")
    _, _, _, epoch, first, count, _ = _HEADER.unpack_from(octets)
    return Frame(epoch, first, count, octets)
