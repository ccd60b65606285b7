"""What the works of jobs have in common: a principal, a queue, a limit, and counts."""

from __future__ import annotations

from leveret.broker.core.queues.message_selector import Selector
from leveret.broker.core.queues.queue import Queue
from leveret.broker.core.scheduling.turn import TimeSlice
from leveret.broker.operations.jobs.job_options import JobOptions
from leveret.broker.operations.jobs.plans import Counts, Planner, Room
from leveret.broker.operations.principal import Principal


class Work:
    """What a job does, in steps of a few milliseconds.

    Args:
        principal: Who does it.
        source: The queue that messages come from; of a restore, the one that gets them.
        options: What is done.
        counts: What has been done before.
        number: Where it begins, or goes on; see the subclasses.

    Attributes:
        source: See Args.
        counts: What has been done.
        number: Where it goes on after a restart.
        is_over: Whether nothing is left to do, or the limit is reached.
        waits: Why the last step could not send the next message; "" if it could.
    """

    def __init__(
        self, principal: Principal, source: Queue, options: JobOptions, counts: Counts, number: int = 0
    ) -> None:
        self.source = source
        self._principal = principal
        self._options = options
        self.counts = counts
        self.number = number
        self.is_over = False
        self.waits = ""

    @property
    def is_checking(self) -> bool:
        """Whether the last step has ended within a message, whose body takes memory meanwhile."""
        return False

    @property
    def generation(self) -> int:
        """Number that increases with every change of topology or permissions."""
        return self._principal.generation

    def use(self, principal: Principal) -> None:
        """Work with the permissions of a user from now on."""
        self._principal = principal

    def close(self) -> None:
        """Free what it has taken; it takes no further step."""

    def step(self, most: int, takes: bool = True, time_slice: TimeSlice | None = None) -> int:
        """Do some of it, for a time slice; return the number of messages that were sent.

        Args:
            most: Maximum number of messages that are sent.
            takes: Whether they are; otherwise they are only counted.
            time_slice: The time slice; None for one of its own.
        """
        raise NotImplementedError

    def _limited(self, most: int) -> int:
        """Return how many messages may be sent at most: so many, or what is left of the limit."""
        limit = self._options.limit
        return most if limit is None else min(most, limit - self.counts.returned)

    @property
    def _is_at_limit(self) -> bool:
        return self._options.limit is not None and self.counts.returned >= self._options.limit


class SelectingWork(Work):
    """Work that looks at messages, and decides where those go that match. For the arguments see Work."""

    def __init__(
        self, principal: Principal, source: Queue, options: JobOptions, counts: Counts, number: int = 0
    ) -> None:
        super().__init__(principal, source, options, counts, number)
        self._planner = Planner(principal, source, options)
        self._selector = Selector(options.wanted)
        self._dry_room = Room()

    @property
    def is_checking(self) -> bool:
        """See Work."""
        return self._selector.is_checking

    def use(self, principal: Principal) -> None:
        """Work with the permissions of a user from now on."""
        super().use(principal)
        self._planner = Planner(principal, self.source, self._options)
