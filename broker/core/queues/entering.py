"""Enters the values of messages that a queue has when it begins to drop duplicates: after a restart, or by a policy.

This is done in time slices. Until it is finished, a duplicate of a message that is not entered yet gets in.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from leveret.broker.core.queues.browsing import WAITING, Browser
from leveret.broker.core.queues.queue import Queue
from leveret.storage.stores.looking import levels
from leveret.storage.stores.picking import next_number


def enter_values(queue: Queue) -> None:
    """Enter the values of all messages that are in a queue now, ready and unacked."""
    values = queue.outbox.values
    # Later messages are noted when they are published.
    ends = {level: next_number(store) for level, store in levels(queue.store)}
    if queue.contents.waiting is not None:
        ends[WAITING] = queue.contents.waiting.next_number
    steps = _enter(queue, Browser(queue), ends, values.entering)
    queue.host.timers.call_later(0, partial(_run, queue, steps))


def _run(queue: Queue, steps: Iterator[None]) -> None:
    time_slice = queue.host.turn.slice()
    for _ in steps:
        if time_slice.is_over():
            queue.host.timers.call_later(0, partial(_run, queue, steps))
            return


def _enter(queue: Queue, browser: Browser, ends: dict[int, int], entering: int) -> Iterator[None]:
    values = queue.outbox.values
    for found in browser.steps():
        if values.entering != entering:
            # It was purged, or drops duplicates no longer.
            return
        for each in found:
            if each.place.seq < ends.get(each.place.level, 0):
                values.add_found(each.message)
        yield
    if values.entering == entering:
        values.is_incomplete = False
