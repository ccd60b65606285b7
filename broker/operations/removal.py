"""Deletes single messages of a queue by their keys, as a reader of the data directory has seen them.

A number is never used for a second message, so what was deleted, acknowledged or dropped since is simply not there any
more. The messages of a request are deleted in any order, and a request that was interrupted may be repeated.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Final, Literal, NamedTuple, TypeAlias

from leveret.broker.core.queues.queue import Queue
from leveret.storage.interface import MessageStore
from leveret.storage.seq_ranges import runs_of
from leveret.storage.stores.looking import levels, look
from leveret.storage.stores.picking import Absence, absence, is_ready, pick
from leveret.storage.stores.priority_store import PriorityStore
from leveret.storage.stores.returns_store import waiting_level

#: Messages, and bytes of their bodies, that a step reads.
_STEP_MESSAGES: Final = 64
_STEP_BYTES: Final = 1 << 20

#: Why a message was not deleted: see Absence; or it waits for its retry, or its record cannot be read.
Reason: TypeAlias = Absence | Literal["waiting", "damaged"]


class Skipped(NamedTuple):
    """A message that was not deleted.

    Attributes:
        level: Its priority in the files, `store_priority`.
        seq: Its number.
        reason: Why.
    """

    level: int
    seq: int
    reason: Reason


class Removal:
    """Deletes messages of a queue, in steps of a millisecond or two.

    They are not dead-lettered, and count as purged.

    Args:
        queue: The queue; see queues.open_for_removal().
        keys: Level and number of each message, in any order.
        is_trial: Only count what would be deleted.

    Attributes:
        removed: Number of messages that were deleted.
        skipped: Messages that were not.
    """

    def __init__(self, queue: Queue, keys: Iterable[tuple[int, int]], is_trial: bool = False) -> None:
        self._queue = queue
        self._keys = sorted(set(keys))
        self._is_trial = is_trial
        self.removed = 0
        self.skipped: list[Skipped] = []

    def steps(self) -> Iterator[None]:
        """Delete the messages. The caller may do other things in between."""
        for level, keys in groupby(self._keys, key=lambda key: key[0]):
            for first, end in runs_of([seq for _, seq in keys]):
                for at in range(first, end, _STEP_MESSAGES):
                    self._handle(level, range(at, min(end, at + _STEP_MESSAGES)))
                    yield

    def _handle(self, level: int, numbers: range) -> None:
        """Delete messages with consecutive numbers."""
        queue = self._queue
        if queue.deleted:
            self._skip(level, numbers, ["gone"] * len(numbers))
            return
        # What has expired, or can be delivered, leaves the queue first.
        queue.ready_count()
        store = dict(levels(queue.store)).get(level)
        if store is None:
            self._skip(level, numbers, [self._of_no_store(level, seq) for seq in numbers])
            return
        ready = [seq for seq in numbers if is_ready(store, seq)]
        absent = [seq for seq in numbers if not is_ready(store, seq)]
        self._skip(level, absent, absence(store, absent))
        if ready:
            self._remove(level, store, ready)

    def _remove(self, level: int, store: MessageStore, ready: Sequence[int]) -> None:
        """Delete ready messages, as far as they can be read."""
        wanted, at, removed = set(ready), ready[0], 0
        while at <= ready[-1]:
            found = look(store, at, ready[-1] + 1 - at, _STEP_BYTES)
            chosen = [each for each in found.seen if each.seq in wanted]
            wanted.difference_update([each.seq for each in chosen])
            removed += len(chosen)
            at = max(at + 1, found.end)
            if chosen and not self._is_trial:
                self._queue.outbox.remove(pick(store, chosen))
        self._skip(level, sorted(wanted), ["damaged"] * len(wanted))
        self.removed += removed
        if removed and not self._is_trial:
            self._queue.host.turn.deliver_later(self._queue)

    def _of_no_store(self, level: int, seq: int) -> Reason:
        """Return why there is no message, at a level that has no store for ready messages."""
        store, waiting = self._queue.store, self._queue.contents.waiting
        max_priority = store.max_priority if isinstance(store, PriorityStore) else 0
        if waiting is None or level != waiting_level(max_priority):
            return "unknown"
        return "gone" if waiting.find(seq) is None else "waiting"

    def _skip(self, level: int, numbers: Sequence[int], reasons: Sequence[Reason]) -> None:
        self.skipped += [Skipped(level, seq, reason) for seq, reason in zip(numbers, reasons, strict=True)]
