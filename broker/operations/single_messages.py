"""Single messages: deletes those of a queue by their keys, and cancels or delivers what waits for its time.

Keys are those that a reader of the data directory has seen. A number is never used for a second message, so what was
deleted, acknowledged or dropped since is simply not there any more. The messages of a request are deleted in any order,
and a request that was interrupted may be repeated. What waits is in an exchange x-delayed-message, or in a queue.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import groupby
from typing import Final, Literal, NamedTuple, TypeAlias

from leveret.broker.core.delays.schedule import Schedule
from leveret.broker.core.exchanges.types import DelayedExchange
from leveret.broker.core.queues.classic_queue import ClassicQueue
from leveret.broker.core.queues.queue import Queue
from leveret.broker.operations import queues
from leveret.broker.operations.principal import Principal
from leveret.protocol.faults import precondition_failed
from leveret.storage.event_format import EventKind
from leveret.storage.interface import Absence
from leveret.storage.seq_ranges import runs_of
from leveret.storage.stores.priority_store import PriorityStore, waiting_level
from leveret.storage.stores.segment_store import SegmentStore

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

    def __init__(self, queue: ClassicQueue, keys: Iterable[tuple[int, int]], is_trial: bool = False) -> None:
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
        store = dict(queue.store.ordered_levels()).get(level)
        if store is None:
            self._skip(level, numbers, [self._of_no_store(level, seq) for seq in numbers])
            return
        # Keys are numbers of messages on disk.
        assert isinstance(store, SegmentStore)
        ready = [seq for seq in numbers if store.is_ready(seq)]
        absent = [seq for seq in numbers if not store.is_ready(seq)]
        self._skip(level, absent, store.absences(absent))
        if ready:
            self._remove(level, store, ready)

    def _remove(self, level: int, store: SegmentStore, ready: Sequence[int]) -> None:
        """Delete ready messages, as far as they can be read."""
        wanted, at, removed = set(ready), ready[0], 0
        while at <= ready[-1]:
            found = store.look(at, ready[-1] + 1 - at, _STEP_BYTES)
            chosen = [each for each in found.seen if each.seq in wanted]
            wanted.difference_update([each.seq for each in chosen])
            removed += len(chosen)
            at = max(at + 1, found.end)
            if chosen and not self._is_trial:
                self._queue.outbox.remove(self._queue.store.pick(level, chosen))
        self._skip(level, sorted(wanted), ["damaged"] * len(wanted))
        self.removed += removed
        if removed and not self._is_trial:
            self._queue.host.turn.deliver_later(self._queue)

    def _of_no_store(self, level: int, seq: int) -> Reason:
        """Return why there is no message, at a level that has no store for ready messages."""
        store, waiting = self._queue.store, self._queue.waiting
        max_priority = store.max_priority if isinstance(store, PriorityStore) else 0
        if waiting is None or level != waiting_level(max_priority):
            return "unknown"
        return "gone" if waiting.find(seq) is None else "waiting"

    def _skip(self, level: int, numbers: Sequence[int], reasons: Sequence[Reason]) -> None:
        self.skipped += [Skipped(level, seq, reason) for seq, reason in zip(numbers, reasons, strict=True)]


# -- messages that wait -----------------------------------------------------------------------------------


class Waiting(NamedTuple):
    """Messages that wait until they are due: those of an exchange x-delayed-message, or of a queue for their retry.

    Attributes:
        schedule: The messages; None if none has ever waited.
        cancel: Removes the message of a number, which reaches no queue and is not dead-lettered; returns whether it
            still waited.
        deliver_now: Treats the message of a number as if it were due; its second argument is called with whether it
            still waited, when that is done.
    """

    schedule: Schedule | None
    cancel: Callable[[int], bool]
    deliver_now: Callable[[int, Callable[[bool], None]], None]


def open_exchange(principal: Principal, name: str) -> Waiting:
    """Find the waiting messages of an exchange that the principal may read from.

    Raises:
        ChannelFault: ACCESS_REFUSED (403), NOT_FOUND (404); PRECONDITION_FAILED (406) for an exchange of another type.
    """
    principal.check("read", "exchange", name)
    exchange = principal.vhost.topology.exchange(name)
    if not isinstance(exchange, DelayedExchange) or exchange.waiting is None:
        raise precondition_failed(
            f"exchange '{name}' in vhost '{principal.vhost.name}' has type '{exchange.type_name}',"
            f" not '{DelayedExchange.type_name}': no messages wait in it"
        )
    schedule = exchange.waiting.schedule
    route_now = partial(principal.vhost.due_messages.route_now, exchange.waiting)
    return Waiting(schedule, partial(_cancel, schedule), route_now)


def _cancel(schedule: Schedule, number: int) -> bool:
    entry = schedule.take(number)
    if entry is None:
        return False
    schedule.settle([entry], EventKind.CANCELLED)
    return True


def open_queue(principal: Principal, name: str) -> Waiting:
    """Find the messages of a queue that wait for their retry; the principal may read from the queue.

    Raises:
        ChannelFault: ACCESS_REFUSED (403), NOT_FOUND (404), RESOURCE_LOCKED (405).
    """
    return waiting_in(queues.open_for_reading(principal, name))


def waiting_in(queue: Queue) -> Waiting:
    """Return the messages of a queue that wait for their retry."""
    return Waiting(queue.waiting, queue.cancel_delayed, lambda number, done: done(queue.return_now(number)))
