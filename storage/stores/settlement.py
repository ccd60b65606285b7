"""Settled messages as runs, each of which is one event and one stretch of dead numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from leveret.storage.interface import Entry
from leveret.storage.message import Message
from leveret.storage.stored_message import StoredMessage
from leveret.storage.stores.ram_messages import RamMessages

#: A run is cut where waits differ by more than this, in microseconds, and by more than a tenth.
_WAIT_STEP: Final = 100_000


class SettledRun(NamedTuple):
    """Messages whose numbers follow each other and that are alike.

    Attributes:
        first: Number of the first.
        end: The number behind the last.
        durable: They outlive the process.
        stored: They are on disk.
        redelivered: They had been delivered before.
        wait: The longest of their waits, in microseconds.
        body_bytes: Sum of their body lengths.
    """

    first: int
    end: int
    durable: bool
    stored: bool
    redelivered: bool
    wait: int
    body_bytes: int


def settled_runs(
    entries: Sequence[Entry], now: int, ram: RamMessages, durable: bool, persists_transient: bool, unwritten: int
) -> Iterator[SettledRun]:
    """Divide entries into runs.

    Args:
        entries: Not empty; best in the order of their numbers.
        now: Microseconds.
        ram: Knows when messages came that were not read from the disk.
        durable: Persistent messages outlive the process.
        persists_transient: All do.
        unwritten: Messages of the durable stream from this number on are not on disk yet.
    """
    first = end = run_bytes = shortest = longest = 0
    like = True, False, False
    # When messages with numbers in this range came.
    same_from = same_until = arrived = 0
    # The message before, if those that are still in memory as it is only continue its run; up to which number.
    before: Message | None = None
    until = 0
    for seq, message, redelivered in entries:
        if (
            seq == end
            and before is not None
            and seq < until
            and message.envelope is before.envelope
            and redelivered is like[2]
            and not isinstance(message, StoredMessage)
        ):
            end += 1
            run_bytes += len(message.body)
            continue
        if persists_transient or (durable and message.envelope.persistent):
            this = True, seq < unwritten, redelivered
        else:
            this = False, isinstance(message, StoredMessage), redelivered
        if isinstance(message, StoredMessage):
            before = None
            wait = now - message.arrived_at
        else:
            before = message
            if not same_from <= seq < same_until:
                same_from = seq
                arrived, same_until = ram.arrival(seq)
            until = min(same_until, unwritten) if seq < unwritten else same_until
            wait = now - arrived
        if seq == end and this == like and (wait == longest or _are_close(wait, shortest, longest)):
            end = seq + 1
            if wait != longest:
                shortest, longest = min(shortest, wait), max(longest, wait)
            run_bytes += len(message.body)
        else:
            if end:
                yield SettledRun(first, end, *like, longest, run_bytes)
            first, end, like, shortest, longest, run_bytes = seq, seq + 1, this, wait, wait, len(message.body)
    yield SettledRun(first, end, *like, longest, run_bytes)


def _are_close(wait: int, shortest: int, longest: int) -> bool:
    """Whether a message may share a record of the event log with others that waited about as long."""
    return max(longest, wait) - min(shortest, wait) <= max(_WAIT_STEP, longest // 10)
