"""Pages messages of a store out to disk and preloads them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from leveret.storage.format import Stream
from leveret.storage.message import Message
from leveret.storage.segments.message_log import MessageLog
from leveret.storage.segments.segment import Arrival
from leveret.storage.stores.ram_messages import RamMessages

#: Bytes preloaded per call.
_PRELOAD_BYTES: Final = 256 << 10
#: A content header without properties.
_BARE_HEADER_BYTES: Final = 14
_EXPIRES_ANY: Final = 0


def page_out(ram: RamMessages, log: MessageLog, body_bytes: int, may_spill: bool) -> None:
    """Page out the oldest messages of the window: write those that are not on disk, then remove them from memory.

    Args:
        ram: The store's messages in memory.
        log: Its messages on disk; those of the durable stream have been written.
        body_bytes: Approximate number of body bytes to page out.
        may_spill: Whether there may be messages for the spill stream.
    Raises:
        OSError: Not all could be written; the rest stay in memory.
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


def page_out_kept(
    ram: RamMessages, log: MessageLog, body_bytes: int, is_stored: Callable[[int, Message], bool]
) -> None:
    """Let messages leave memory that stand before the window, and write those that are not on disk.

    Args:
        ram: The store's messages in memory.
        log: Its messages on disk; those of the durable stream have been written.
        body_bytes: About this many bytes, 1 or more; the lowest numbers first.
        is_stored: Whether a message can be read from disk.
    Raises:
        OSError: Not all could be written; those stay.
    """
    batch: list[Arrival] = [
        (seq, message, ram.arrival(seq)[0])
        for seq, message in ram.remove_kept(body_bytes)
        if not is_stored(seq, message)
    ]
    failure = log.append(Stream.SPILL, batch) if batch else None
    if failure is not None:
        for arrival in batch:
            if not log.was_written(arrival):
                ram.keep(arrival[0], arrival[1])
        raise failure


def _to_spill(ram: RamMessages, log: MessageLog, messages: Sequence[Message]) -> list[Arrival]:
    """Return the messages at the head of the window that belong to the spill stream."""
    batch: list[Arrival] = []
    arrived = same_until = 0
    for seq, message in enumerate(messages, ram.first_seq):
        if log.stream_of(message.envelope.persistent) is Stream.SPILL:
            if seq >= same_until:
                arrived, same_until = ram.arrival(seq)
            batch.append((seq, message, arrived))
    return batch


def preload(ram: RamMessages, log: MessageLog, seq: int, count: int, below: int) -> tuple[int, int]:
    """Preload messages from disk into memory.

    Args:
        ram: The store's messages in memory.
        log: Its messages on disk.
        seq: Number of the first message to check.
        count: Maximum number of messages to check.
        below: Only messages whose body, and body with properties, are shorter than this many bytes.
    Returns:
        The number after the last message checked, and the number of messages checked; 0 if there are no more.
    """
    first, end = next(log.dead.live_runs(seq, ram.first_seq), (0, 0))
    entries = log.read_run(first, min(count, end - first), _PRELOAD_BYTES, _EXPIRES_ANY, False, True) if end else []
    for number, message, _ in entries:
        size = len(message.body)
        if size < below and size + len(message.envelope.header) - _BARE_HEADER_BYTES < below:
            ram.drop_kept([(number, message, False)])
            ram.keep(number, message)
    return (entries[-1][0] + 1 if entries else seq), len(entries)
