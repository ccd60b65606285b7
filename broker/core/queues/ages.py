"""How long the oldest messages of a queue have been in it, by their arrival."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final

from leveret.broker.core.queues.consumers import UnackedHolder
from leveret.broker.core.queues.queue import Queue
from leveret.storage.interface import Entry
from leveret.storage.stores import ages

#: Messages of one holder that are looked at for its oldest one.
_LOOKS_MAX: Final = 1000
_SECOND: Final = 1_000_000


def oldest_ready_age(queue: Queue) -> float | None:
    """Return the age of the oldest ready message in seconds.

    Returns:
        None if none is ready, or if it is not known yet; also for a stream, whose messages wait for nobody.
    """
    store = queue.store
    if queue.traits.keeps_messages:
        return None
    return _age(queue, ages.oldest_ready(store)) if store.ready_count else None


def oldest_unacked_age(queue: Queue) -> float | None:
    """Return the age of the oldest unacked message in seconds, from its arrival in the queue, not its delivery.

    Returns:
        None if none is unacked, or if it is not known yet.
    """
    if not queue.unacked_count:
        return None
    store = queue.store
    known = ages.oldest_taken(store)
    if not known:
        # Its store is in memory.
        held = (entry for holder in holders(queue) for entry in _first_ones(holder))
        known = min([at for entry in held if (at := ages.arrival(store, entry))], default=0)
    return _age(queue, known)


def holders(queue: Queue) -> list[UnackedHolder]:
    """Return all who hold unacked messages of a queue."""
    return [each for each in [*queue.consumers, *queue.delivery.others] if each.unacked]


def _first_ones(holder: UnackedHolder) -> Iterator[Entry]:
    """Yield the messages of a holder that may be its oldest one.

    They come in the order of delivery. So of those that had not been delivered before, the first is the oldest; those
    that had are looked at up to a limit.
    """
    is_first = True
    for entry in islice(holder.unacked_entries(), _LOOKS_MAX):
        if entry[2] or is_first:
            yield entry
        is_first = is_first and entry[2]


def _age(queue: Queue, arrived: int) -> float | None:
    return max(0, queue.host.timers.now() - arrived) / _SECOND if arrived else None
