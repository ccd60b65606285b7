"""Work that one queue makes for itself is done in slices of time, so that others are served in between."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest

from leveret.broker.core.queues.contents import _DROP_STEP
from leveret.broker.core.queues.queue import Queue
from leveret.broker.core.scheduling.turn import TimeSlice
from leveret.broker.core.vhosts.vhost import VirtualHost
from leveret.policies.policy import Policy
from leveret.protocol.field_table import FieldTable, FieldValue
from leveret.storage.message import Envelope, Message
from tests.support.manual_loop import ManualLoop
from tests.support.queues import declare, new_vhost
from tests.support.stepping_clock import SteppingClock

_LETTERS = (
    ("x-dead-letter-exchange", FieldValue("S", b"")),
    ("x-dead-letter-routing-key", FieldValue("S", b"letters")),
)
_MESSAGES = 20_000


class Steps:
    """A loop of which a test sees every turn."""

    def __init__(self) -> None:
        self.loop = ManualLoop()
        self.vhost = new_vhost(self.loop, clock=SteppingClock())
        self.turn = self.vhost.turn

    def counts(self, *queues: Queue) -> list[list[int]]:
        """What is ready in each queue after each turn, until there is nothing left to do."""
        found = [[queue.store.ready_count for queue in queues]]
        while not self.loop.is_idle:
            callbacks, self.loop._soon = self.loop._soon, []
            for callback in callbacks:
                callback()
            found.append([queue.store.ready_count for queue in queues])
            assert len(found) < 10_000
        return found


@pytest.fixture
def steps() -> Steps:
    return Steps()


def fill(queue: Queue, count: int = _MESSAGES, expiration: int | None = None) -> None:
    envelope = Envelope(b"\0\1q", b"\0\x3c" + bytes(12), expiration_ms=expiration)
    for _ in range(0, count, 100):
        queue.publish([Message(envelope, b"m")] * 100, 100)


def shrink(vhost: VirtualHost, pattern: str = "^q", **definition: Any) -> None:
    policy = Policy("p", pattern, definition or {"max-length": 10}, 0, "queues")
    vhost.policies.set(replace(policy), operator=False)


def test_a_slice_ends_after_its_time() -> None:
    now = 0
    time_slice = TimeSlice(lambda: now)
    assert not time_slice.is_over()
    now = 4_999
    assert not time_slice.is_over()
    now = 5_000
    assert time_slice.is_over()


@pytest.mark.parametrize("arguments", [(), _LETTERS], ids=["dropped", "dead-lettered"])
@pytest.mark.parametrize(
    "definition",
    [{"max-length": 10}, {"max-length-bytes": 10}, {"max-length": 10, "overflow": "reject-publish"}],
)
def test_shrinking(steps: Steps, arguments: FieldTable, definition: dict[str, Any]) -> None:
    queue = declare(steps.vhost, arguments=arguments)
    letters = declare(steps.vhost, "letters")
    fill(queue)
    steps.loop.run()
    shrink(steps.vhost, "^q$", **definition)
    counts = [ready for (ready,) in steps.counts(queue)]
    assert counts[-1] == 10
    assert len(counts) > 3
    assert all(0 <= before - after <= 5 * _DROP_STEP for before, after in itertools.pairwise(counts))
    assert letters.store.ready_count == (_MESSAGES - 10 if arguments else 0)


def test_many_queues_share_the_slice_of_a_turn(steps: Steps) -> None:
    queues = [declare(steps.vhost, f"q{number}") for number in range(20)]
    for queue in queues:
        fill(queue, 2000)
    steps.loop.run()
    steps.vhost.policies.set(Policy("p", "^q", {"max-length": 0}, 0, "queues"), operator=False)
    totals = [sum(ready) for ready in steps.counts(*queues)]
    assert totals[-1] == 0
    assert all(0 <= before - after <= 5 * _DROP_STEP for before, after in itertools.pairwise(totals))


@pytest.mark.parametrize("arguments", [(), _LETTERS], ids=["dropped", "dead-lettered"])
def test_expiry(steps: Steps, arguments: FieldTable) -> None:
    queue = declare(steps.vhost, arguments=arguments)
    fill(queue, expiration=1000)
    steps.loop.run()
    steps.loop.now += 2
    steps.turn.deliver_later(queue)
    counts = [ready for (ready,) in steps.counts(queue)]
    assert counts[-1] == 0
    assert all(0 <= before - after <= 5 * _DROP_STEP for before, after in itertools.pairwise(counts))


def test_the_settled_state_is_returned_on_request(steps: Steps) -> None:
    queue = declare(steps.vhost)
    fill(queue)
    shrink(steps.vhost)
    assert queue.store.ready_count > 10
    assert queue.ready_count() == 10
