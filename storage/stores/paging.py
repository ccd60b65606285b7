"""Moving messages of a store between memory and disk."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from leveret.storage.format import Stream
from leveret.storage.message import Message
from leveret.storage.segments.message_log import MessageLog
from leveret.storage.segments.segment import Arrival
from leveret.storage.stores.ram_messages import RamMessages

#: Bytes that are preloaded at once.
_PRELOAD_BYTES: Final = 256 << 10
#: A content header without properties.
_BARE_HEADER_BYTES: Final = 14
_EXPIRES_ANY: Final = 0


def page_out(ram: RamMessages, log: MessageLog, body_bytes: int, may_spill: bool) -> None:
    """Let the oldest messages of the window leave memory, and write those that are not on disk.

    Args:
        ram: The store's messages in memory.
        log: Its messages on disk; those of the durable stream have been written.
        body_bytes: About this many bytes.
        may_spill: There may be messages for the spill stream.
    Raises:
        OSError: Not all could be written; those stay.
    """
    if ram.window_bytes <= body_bytes and not may_spill:
        ram.drop_oldest(len(ram.window))
        return
    oldest = ram.oldest(body_bytes)
    failure: OSError | None = None
    if may_spill:
        batch = _to_spill(ram, log, oldest)
        failure = log.append(Stream.SPILL, batch) if batch else None
        if failure is not None:
            left = next(arrival[0] for arrival in batch if not log.was_written(arrival))
            oldest = oldest[: left - ram.first_seq]
    ram.drop_oldest(len(oldest))
    if failure is not None:
        raise failure


def _to_spill(ram: RamMessages, log: MessageLog, messages: Sequence[Message]) -> list[Arrival]:
    """Those of the messages at the head of the window that go to the spill stream."""
    batch: list[Arrival] = []
    arrived = same_until = 0
    for seq, message in enumerate(messages, ram.first_seq):
        if log.stream_of(message.envelope.persistent) is Stream.SPILL:
            if seq >= same_until:
                arrived, same_until = ram.arrival(seq)
            batch.append((seq, message, arrived))
    return batch


def preload(ram: RamMessages, log: MessageLog, seq: int, count: int, below: int) -> tuple[int, int]:
    """Bring messages from disk to memory ahead of their turn.

    Args:
        ram: The store's messages in memory.
        log: Its messages on disk.
        seq: The first to look at.
        count: How many to look at, at most.
        below: Only messages shorter than this, in bytes, and in bytes with their properties.
    Returns:
        How far that came, as the number behind the last, and how many were looked at; 0 if there is nothing more.
    """
    first, end = next(log.dead.live_runs(seq, ram.first_seq), (0, 0))
    entries = log.read_run(first, min(count, end - first), _PRELOAD_BYTES, _EXPIRES_ANY, False, True) if end else []
    for number, message, _ in entries:
        size = len(message.body)
        if size < below and size + len(message.envelope.header) - _BARE_HEADER_BYTES < below:
            ram.drop_kept([(number, message, False)])
            ram.keep(number, message)
    return (entries[-1][0] + 1 if entries else seq), len(entries)
