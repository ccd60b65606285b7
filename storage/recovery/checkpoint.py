r"""Checkpoints: the state of all stores up to a position of the event log, so that recovery reads only later events.

    0 8s magic "LVTCKP\x01\n" | 8 u16 header_len = 64 | 10 u16 format = 1 | 12 u32 flags (1 clean) | 16 16s store id
    32 u64 event file | 40 u64 offset in it | 48 i64 created | 56 u32 stores | 60 u32 next qid
    then for each store: u32 qid | u8 priority | 3 zeros | u64 floor | u64 next_seq | u64 redelivered_below
        u64 messages | u64 body_bytes | u32 bitmaps | u32 ranges, then bitmaps of u64 block | 512 bytes, then ranges of
        dead blocks of u64 first | u64 end
    last u32 crc of all before

Messages and bytes are valid only in a clean checkpoint, which is written when the broker stops.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple
from zlib import crc32

from leveret.storage.disk.files import Files, numbers_in, replace_file
from leveret.storage.event_log import EventPosition
from leveret.storage.segments.dead_set import BLOCK, DeadSet

_MAGIC: Final = b"LVTCKP\x01\n"
_HEADER: Final = struct.Struct("<8sHHI16sQQqII")
_STORE: Final = struct.Struct("<IB3xQQQQQII")
_BITMAP: Final = struct.Struct("<Q512s")
_RANGE: Final = struct.Struct("<QQ")
_CRC: Final = struct.Struct("<I")
_CLEAN: Final = 1
#: Number of checkpoints that are kept, in case one is damaged.
_KEPT: Final = 2


class StoreCheckpoint(NamedTuple):
    """State of one store in a checkpoint.

    Attributes:
        qid: Number of the queue.
        priority: Priority of the store.
        dead: Its dead messages.
        next_seq: Number of the next message.
        redelivered_below: Messages with lower numbers may have been delivered before.
        messages: Number of live messages.
        body_bytes: Sum of their body lengths.
    """

    qid: int
    priority: int
    dead: DeadSet
    next_seq: int
    redelivered_below: int
    messages: int
    body_bytes: int


class Checkpoint(NamedTuple):
    """A checkpoint.

    Attributes:
        clean: Whether it was written by a clean shutdown, so that messages and bytes are valid.
        store_id: ID of the data directory.
        position: Position in the event log after the last covered event.
        created: Microseconds since 1970.
        next_qid: The next queue number.
        stores: All stores by qid and priority.
    """

    clean: bool
    store_id: bytes
    position: EventPosition
    created: int
    next_qid: int
    stores: dict[tuple[int, int], StoreCheckpoint]


def pack_checkpoint(checkpoint: Checkpoint) -> bytes:
    """Encode a checkpoint."""
    parts = [
        _HEADER.pack(
            _MAGIC,
            _HEADER.size,
            1,
            _CLEAN if checkpoint.clean else 0,
            checkpoint.store_id,
            *checkpoint.position,
            checkpoint.created,
            len(checkpoint.stores),
            checkpoint.next_qid,
        )
    ]
    for store in checkpoint.stores.values():
        bitmaps, ranges = list(store.dead.bitmaps()), list(store.dead.full_blocks())
        parts.append(
            _STORE.pack(
                store.qid,
                store.priority,
                store.dead.floor,
                store.next_seq,
                store.redelivered_below,
                store.messages,
                store.body_bytes,
                len(bitmaps),
                len(ranges),
            )
        )
        parts += [_BITMAP.pack(*each) for each in bitmaps]
        parts += [_RANGE.pack(*each) for each in ranges]
    octets = b"".join(parts)
    return octets + _CRC.pack(crc32(octets))


def unpack_checkpoint(octets: bytes) -> Checkpoint | None:
    """Decode a checkpoint; return None if it is damaged."""
    if len(octets) < _HEADER.size + 4 or crc32(octets[:-4]) != _CRC.unpack_from(octets, len(octets) - 4)[0]:
        return None
    magic, at, _, flags, store_id, file, offset, created, count, next_qid = _HEADER.unpack_from(octets)
    if magic != _MAGIC:
        return None
    stores: dict[tuple[int, int], StoreCheckpoint] = {}
    for _ in range(count):
        qid, priority, floor, *numbers, bitmaps, ranges = _STORE.unpack_from(octets, at)
        at += _STORE.size
        dead = DeadSet(floor)
        for _ in range(bitmaps):
            dead.load_bitmap(*_BITMAP.unpack_from(octets, at))
            at += _BITMAP.size
        for _ in range(ranges):
            first, end = _RANGE.unpack_from(octets, at)
            dead.add(first * BLOCK, (end - first) * BLOCK)
            at += _RANGE.size
        stores[qid, priority] = StoreCheckpoint(qid, priority, dead, *numbers)
    return Checkpoint(bool(flags & _CLEAN), store_id, EventPosition(file, offset), created, next_qid, stores)


def write_checkpoint(files: Files, directory: str, octets: bytes) -> None:
    """Write a checkpoint and remove old ones.

    Raises:
        OSError: It was not written; the previous ones remain.
    """
    numbers = _numbers(files, directory)
    replace_file(files, directory, _name(max(numbers, default=0) + 1), octets)
    for number in numbers[: max(0, len(numbers) + 1 - _KEPT)]:
        files.unlink(f"{directory}/{_name(number)}")


def read_checkpoints(files: Files, directory: str, damaged: list[str]) -> list[Checkpoint]:
    """Return the readable checkpoints, newest first. Only the last written one can be clean.

    Args:
        directory: Path of their directory.
        damaged: Receives the paths of unreadable checkpoints.
    """
    found: list[Checkpoint] = []
    numbers = _numbers(files, directory)
    for number in reversed(numbers):
        path = f"{directory}/{_name(number)}"
        try:
            checkpoint = unpack_checkpoint(files.read_all(path) or b"")
        except OSError:
            checkpoint = None
        if checkpoint is None:
            damaged.append(path)
        else:
            found.append(checkpoint._replace(clean=checkpoint.clean and number == numbers[-1]))
    return found


def _name(number: int) -> str:
    return f"ckpt-{number:010d}.bin"


def _numbers(files: Files, directory: str) -> list[int]:
    return numbers_in(files, directory, "ckpt-", ".bin", 10)
