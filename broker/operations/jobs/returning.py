"""Returns dead letters to where they come from, or moves messages to another queue.

A message is published to its target and leaves the dead-letter queue in the same turn. The store removes the original
only when the copy is synced. So a crash in between leaves it in both queues, never in none.

Only messages are returned that were in the queue when the job began: those that are dead-lettered again have higher
numbers, so that no message goes round in a circle.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from itertools import groupby
from typing import Final

from leveret.broker.core.messages import AnsweredPublisher, Origin
from leveret.broker.core.queues.browsing import Browsed, Browser, Place, is_ready_at, take_out
from leveret.broker.core.queues.classic_queue import ClassicQueue
from leveret.broker.core.scheduling.turn import TimeSlice
from leveret.broker.operations.jobs.job_options import JobOptions
from leveret.broker.operations.jobs.plans import FULL, NO_QUEUE, Counts, Plan, Room, SelectingWork
from leveret.broker.operations.principal import Principal
from leveret.storage.event_format import EventKind
from leveret.storage.interface import Entry
from leveret.storage.message import Message

#: Messages that a step looks at.
_LOOK: Final = 64


class MoveEnd(Enum):
    """Why a move for which a request waits has ended."""

    EMPTY = "the source has no more messages"
    LIMIT = "the limit is reached"
    TARGET_FULL = "the target is full"
    DELETED = "one of the queues was deleted"


class ReturnWork(SelectingWork):
    """Returns the messages of a queue. Those without room are left where they are; after a restart it begins again.

    Args:
        principal: See Work.
        source: The dead-letter queue.
        options: How they are returned.
        ends: By level of the queue, the number up to which messages are returned: that of the next message when the
            job began.
        counts: See Work.
        ends_early: Whether it ends when a target is full or gone; otherwise messages are left where they are.
    """

    source: ClassicQueue

    def __init__(
        self,
        principal: Principal,
        source: ClassicQueue,
        options: JobOptions,
        ends: Mapping[int, int],
        counts: Counts,
        ends_early: bool = False,
    ) -> None:
        super().__init__(principal, source, options, counts)
        self._ends = ends
        self._ends_early = ends_early
        self._place: Place | None = None

    def step(self, most: int, takes: bool = True, time_slice: TimeSlice | None = None) -> int:
        """Look at messages for a time slice, and return those that match; see Work.step()."""
        time_slice = time_slice or self.source.host.turn.slice()
        count = self._look(most, takes, time_slice)
        while count < most and not (self.is_over or self.is_checking or self.source.deleted or time_slice.is_over()):
            count += self._look(most - count, takes, time_slice)
        return count

    def _look(self, most: int, takes: bool, time_slice: TimeSlice) -> int:
        """Look at some messages, and return those that match; return their number."""
        browser = Browser(self.source, self._place, ready_only=True, most=_LOOK)
        batch = next(browser.steps(), [])
        most = self._limited(most)
        chosen: list[tuple[Browsed, Plan]] = []
        self._place = browser.place
        # What is only counted takes the room of what follows.
        room = Room() if takes else self._dry_room
        for at, found in enumerate(batch):
            if len(chosen) >= most or (at and time_slice.is_over()):
                self._place = found.place
                break
            if found.place.seq >= self._ends.get(found.place.level, 0):
                browser.skip_level()
                self._place = browser.place
                break
            if not self._consider(found, chosen, room, time_slice):
                self._place = found.place
                break
        count = self._send(chosen) if takes else len(chosen)
        self.counts.returned += count
        is_refused = self._ends_early and not self._problems.isdisjoint((FULL, NO_QUEUE))
        self.is_over = self._place is None or self._is_at_limit or is_refused
        return count

    @property
    def _problems(self) -> set[str]:
        return {problem for problem, _ in self.counts.left}

    @property
    def end(self) -> MoveEnd | None:
        """Why a move has ended; None while it continues."""
        if FULL in self._problems:
            return MoveEnd.TARGET_FULL
        if self.source.deleted or NO_QUEUE in self._problems:
            return MoveEnd.DELETED
        if not self.is_over:
            return None
        return MoveEnd.LIMIT if self._is_at_limit else MoveEnd.EMPTY

    @property
    def unreadable(self) -> str | None:
        """Why a move has left messages that the filter cannot check; None if there are none."""
        left = self.counts.left.items()
        reasons = [f"{count} not checked: {problem}" for (problem, _), count in left if problem not in (FULL, NO_QUEUE)]
        return "; ".join(reasons) or None

    def _consider(self, found: Browsed, chosen: list[tuple[Browsed, Plan]], room: Room, time_slice: TimeSlice) -> bool:
        """Decide what becomes of a message; return False to continue with it later."""
        counts = self.counts
        if found.is_ready:
            now, selector = self.source.host.timers.now(), self._selector
            wanted = selector.wants(found.place, found.message, found.arrived, now, time_slice)
            if wanted is None:
                return False
            if selector.problem:
                counts.miss(selector.problem, 1)
            if wanted:
                self._choose(found, chosen, room)
        counts.scanned += 1
        return True

    def _choose(self, found: Browsed, chosen: list[tuple[Browsed, Plan]], room: Room) -> None:
        counts = self.counts
        plan = self._planner.plan(found.message)
        if plan.origin is not None:
            counts.count_origin(plan.target, plan.origin.reason)
        problem = plan.problem or ("" if room.reserve(plan.queues, len(found.message.body)) else FULL)
        if problem:
            counts.leave(plan, problem)
        else:
            chosen.append((found, plan))

    def _send(self, chosen: Sequence[tuple[Browsed, Plan]]) -> int:
        """Take messages out of the queue, publish them, and settle them; return the number of those accepted."""
        source = self.source
        # To find room, targets may have dropped messages, whose dead letters may have dropped some here.
        chosen = [each for each in chosen if is_ready_at(source, each[0].place)]
        if not chosen:
            return 0
        # Before any of them is published: that could drop others here.
        entries = take_out(source, [found for found, _ in chosen])
        accepted: list[Entry] = []
        refused: list[Entry] = []
        at = 0
        for run in _runs(chosen):
            taken = self._publish([found.message.body for found, _ in run], run[0][1])
            accepted += entries[at : at + taken]
            refused += entries[at + taken : at + len(run)]
            if taken < len(run):
                self.counts.leave(run[0][1], FULL, len(run) - taken)
            at += len(run)
        if source.deleted:
            return len(accepted)
        if refused:
            source.contents.put_back(refused)
        if accepted:
            source.acknowledge(accepted, EventKind.MOVED)
        source.host.turn.deliver_later(source)
        return len(accepted)

    def _publish(self, bodies: Sequence[bytes], plan: Plan) -> int:
        messages = [Message(plan.envelope, body) for body in bodies]
        size = len(bodies[0]) * len(bodies)
        publisher = AnsweredPublisher(Origin("", 0, self._principal.user.name))
        taken = min([queue.publish(messages, size, publisher) for queue in plan.queues])
        for history in plan.histories:
            history.remember(messages[:taken])
        return taken


def _runs(chosen: Sequence[tuple[Browsed, Plan]]) -> Iterator[list[tuple[Browsed, Plan]]]:
    """Group consecutive messages of one plan and size."""
    for _, run in groupby(chosen, key=lambda each: (id(each[1]), len(each[0].message.body))):
        yield [*run]
