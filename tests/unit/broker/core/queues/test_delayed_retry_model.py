"""Random histories of a queue whose returned messages are counted and wait, compared with a model; it restarts, too."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from leveret.broker.core.queues.queue import Holder
from leveret.protocol.field_table import find
from leveret.storage.interface import Entry
from tests.support.queue_content import headers_of, publish
from tests.support.simulated_files import SimulatedFiles
from tests.support.stored_queue import Start

#: How messages return: whether they have failed, and whether their channel is gone.
WAYS = {"nack": (False, False), "reject": (True, False), "close": (True, True), "timeout": (False, True)}
STEPS = (500, 4000, 1000)
UNLIMITED = 1 << 30


@dataclass
class Copy:
    """A message: its body, place, counts, and when it is due, in milliseconds."""

    body: str
    #: Those that returned come first.
    is_behind: bool
    number: int
    count: int = 0
    returns: int = 0
    delivered: bool = False
    due: int = 0

    @property
    def place(self) -> tuple[bool, int]:
        return self.is_behind, self.number


class ReturningQueue(RuleBasedStateMachine):
    """One queue. The model has a plain list for each state of messages."""

    @initialize(
        kind=st.sampled_from(("classic", "quorum")),
        retry=st.sampled_from(("all", "failed", "returned", "disabled")),
        has_steps=st.booleans(),
        most=st.sampled_from((None, 1000, 2500)),
        limit=st.sampled_from((None, 0, 2)),
        all_limit=st.sampled_from((None, 1, 3)),
    )
    def begin(
        self, kind: str, retry: str, has_steps: bool, most: int | None, limit: int | None, all_limit: int | None
    ) -> None:
        self.files = SimulatedFiles()
        given: dict[str, Any] = {"queue_type": kind, "delayed_retry_type": retry, "delayed_retry_min": 1000}
        if has_steps:
            given["delayed_retry_steps"] = ",".join(f"{step}ms" for step in STEPS)
        if most is not None:
            given["delayed_retry_max"] = most
        if limit is not None and kind == "quorum":
            given["delivery_limit"] = limit
        if all_limit is not None:
            given["redelivery_limit"] = all_limit
        self.given = given
        self.start = Start(self.files, 1000.0, **given)
        self.is_quorum, self.retry, self.has_steps, self.most = kind == "quorum", retry, has_steps, most or 1000
        self.limit = (20 if limit is None else limit) if kind == "quorum" else UNLIMITED
        self.all_limit = UNLIMITED if all_limit is None else all_limit
        self.goes_back = kind == "classic" and retry == "disabled" and all_limit is None
        self.to_tail = kind == "quorum" and limit is None
        self.numbers = self.now = self.dropped = self.published = 0
        self.ready: list[Copy] = []
        self.waiting: list[Copy] = []
        self.held: list[tuple[Copy, Holder, Entry]] = []

    def _next(self) -> int:
        self.numbers += 1
        return self.numbers

    @rule(count=st.integers(1, 4))
    def publish(self, count: int) -> None:
        bodies = [f"{self.published + number:05d}" for number in range(count)]
        self.published += count
        publish(self.start.queue, *bodies, persistent=True)
        self.ready += [Copy(body, True, self._next()) for body in bodies]

    @rule()
    def get(self) -> None:
        holder = Holder(self.start.queue)
        entry = self.start.queue.get(holder)
        if not self.ready:
            assert entry is None
            return
        assert entry is not None
        copy = min(self.ready, key=lambda each: each.place)
        self.ready.remove(copy)
        assert (entry[1].body.decode(), entry[2]) == (copy.body, copy.delivered)
        self._check_counts(copy, entry)
        self.held.append((copy, holder, entry))

    def _check_counts(self, copy: Copy, entry: Entry) -> None:
        if self.goes_back:
            return
        count, returns = (find(headers_of(entry[1]), f"x-{name}-count") for name in ("delivery", "acquired"))
        assert (count.value if count is not None else 0) == copy.count
        if self.is_quorum and self.retry != "disabled" and copy.returns:
            assert returns is not None
            assert returns.value == copy.returns
        else:
            assert returns is None

    @precondition(lambda self: self.held)
    @rule(data=st.data(), way=st.sampled_from(("ack", "drop", *WAYS, *WAYS)))
    def settle(self, data: st.DataObject, way: str) -> None:
        self._settle(data.draw(st.integers(0, len(self.held) - 1)), way)

    @rule(ways=st.lists(st.sampled_from((*WAYS,)), min_size=1, max_size=4))
    def return_the_first(self, ways: list[str]) -> None:
        """Have the first message return again and again, until it has come to an end."""
        if not self.ready:
            self.publish(1)
        for way in ways:
            self.get()
            if self.held:
                self._settle(len(self.held) - 1, way)
                self.wait(5000)

    def _settle(self, at: int, way: str) -> None:
        copy, holder, entry = self.held.pop(at)
        queue = self.start.queue
        queue.release(holder, [entry])
        if way == "ack":
            queue.acknowledge([entry])
        elif way == "drop":
            queue.reject([entry])
        else:
            failed, abandoned = WAYS[way]
            queue.requeue([entry], abandoned=abandoned, failed=failed)
            self._return(copy, failed, abandoned)
        self.start.loop.run()

    def _return(self, copy: Copy, failed: bool, abandoned: bool) -> None:
        copy.delivered = True
        if self.goes_back:
            self.ready.append(copy)
            return
        counts = failed or not (self.is_quorum and self.retry != "disabled")
        copy.count += counts
        copy.returns += 1
        if (counts and copy.count > self.limit) or copy.returns > self.all_limit:
            self.dropped += 1
            return
        copy.number = self._next()
        if self.retry in ("all", "failed" if failed else "returned"):
            steps = STEPS[min(copy.returns, len(STEPS)) - 1]
            copy.due = self.now + (steps if self.has_steps else min(1000 * max(1, copy.count), self.most))
            self.waiting.append(copy)
        else:
            copy.is_behind = self.to_tail and not abandoned
            self.ready.append(copy)

    @rule(milliseconds=st.sampled_from((1, 500, 999, 1000, 2500)))
    def wait(self, milliseconds: int) -> None:
        self.now += milliseconds
        # Not by a sum of fractions: what is due now must not miss it by a rounding error.
        self.start.loop.advance(1000 + self.now / 1000 - self.start.loop.now + 0.000_000_4)
        self.start.loop.now = 1000 + self.now / 1000
        self._return_due()

    def _return_due(self) -> None:
        for copy in sorted(self.waiting, key=lambda each: (each.due, each.number)):
            if copy.due <= self.now:
                self.waiting.remove(copy)
                copy.number, copy.is_behind = self._next(), False
                self.ready.append(copy)

    @rule()
    def purge(self) -> None:
        assert self.start.queue.purge() == len(self.ready) + len(self.waiting)
        self.ready.clear()
        self.waiting.clear()

    @rule(milliseconds=st.sampled_from((0, 1000, 5000)))
    def restart(self, milliseconds: int) -> None:
        self.start.stop()
        self.now += milliseconds
        for copy, _, _ in self.held:
            copy.delivered = True
            self.ready.append(copy)
        self.held.clear()
        self.start = Start(self.files, 1000 + self.now / 1000, **self.given)
        self.dropped = 0
        self.start.loop.advance(0)
        self._return_due()

    @invariant()
    def all_are_counted(self) -> None:
        queue = self.start.queue
        assert queue.store.ready_count == len(self.ready)
        assert queue.contents.delayed_count == len(self.waiting)
        assert queue.contents.delayed_bytes == 5 * len(self.waiting)
        assert queue.counters.dropped["delivery_limit"] == self.dropped
        waiting = queue.contents.waiting
        if self.waiting and waiting is not None:
            due = [1_000_000_000 + copy.due * 1000 for copy in self.waiting]
            assert waiting.due_times() == (min(due), max(due))


TestReturningQueue = ReturningQueue.TestCase
