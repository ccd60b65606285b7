"""How long a message waits that returns to its queue: the keys delayed-retry-type, -min, -max and -steps.

Source: RabbitMQ 4.3 for quorum queues; delayed-retry-steps is our own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from leveret.policies.retry_values import ALL, FAILED, LONGEST, RETURNED, format_delay, parse_steps
from leveret.policies.settings import QueueSettings


@dataclass(frozen=True, slots=True)
class DelayedRetry:
    """The delays in force on a queue.

    Args:
        kind: ``all``, ``failed`` or ``returned``.
        least: Delay of the first retry in milliseconds; 0 if there are steps.
        most: Longest delay in milliseconds; 0 if there are steps.
        steps: Delays by the number of returns, in milliseconds; the last one is repeated. Empty: the delay is `least`
            times the delivery count.
    """

    kind: str
    least: int
    most: int
    steps: tuple[int, ...] = ()

    def delay(self, failed: bool, count: int, returns: int) -> int:
        """Return for how many milliseconds a message waits; 0 if it returns at once.

        Args:
            failed: Whether it was rejected, or its channel has ended.
            count: Its delivery count, after this return.
            returns: How often it has returned, whatever the reason, this return included.
        """
        if self.kind != ALL and failed is not (self.kind == FAILED):
            return 0
        if self.steps:
            return self.steps[min(max(returns, 1), len(self.steps)) - 1]
        return min(self.least * max(1, count), self.most)

    def __str__(self) -> str:
        if self.steps:
            return f"{self.kind} (steps: {', '.join(map(format_delay, self.steps))})"
        return f"{self.kind} (min: {self.least}ms, max: {self.most}ms)"


def read_retry(settings: QueueSettings) -> DelayedRetry | None:
    """Return the delays in force; None if there are none. As in RabbitMQ, arguments may have any value."""
    steps = parse_steps(settings.delayed_retry_steps) or ()
    kind = settings.delayed_retry_type
    if kind is None and steps:
        kind = ALL
    if kind not in (ALL, FAILED, RETURNED):
        return None
    if steps:
        return DelayedRetry(kind, 0, 0, steps)
    least = _positive(settings.delayed_retry_min)
    if not least:
        return None
    return DelayedRetry(kind, least, _positive(settings.delayed_retry_max) or least)


def _positive(value: Any) -> int:
    """Return a positive integer; 0 for anything else."""
    is_positive = isinstance(value, int) and not isinstance(value, bool) and value > 0
    return min(value, LONGEST) if is_positive else 0
