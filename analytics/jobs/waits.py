"""Waiting times of messages that left together: an event has the shortest and the longest, and the sum of all."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as f

#: Columns of events that these functions need, besides `messages`.
WAIT_COLUMNS: Final = ("wait_ms", "min_wait_ms", "sum_wait_ms")
#: Number of different waits at most that stand for those of one event.
_STEPS: Final = 32


def sum_of_waits() -> Column:
    """Return the sum of the waits of an event's messages in milliseconds.

    Archives of older versions have the longest one only, which then counts for all.
    """
    return f.expr("coalesce(sum_wait_ms, wait_ms * messages)")


def each_wait() -> Column:
    """Return the waits of an event's messages as an array of `wait_ms`, a double, and `messages`, their number.

    The shortest and the longest one are in it. The others are spread evenly between the shortest and the mean of them,
    and between that and the longest, as many on each side as make the sum right. So up to three are exact, and so are
    those of messages that came at an even pace.
    """
    least, inner = "coalesce(min_wait_ms, wait_ms)", "(messages - 2)"
    total = "coalesce(sum_wait_ms, wait_ms * messages)"
    mean = f"least(wait_ms, greatest({least}, ({total} - wait_ms - {least}) / {inner}))"
    below = f"((wait_ms - {mean}) / (wait_ms - {least}))"
    steps = f"least({inner}, {_STEPS})"
    place = f"((step + 0.5D) / {steps})"
    wait = (
        f"case when {place} < {below} then {least} + ({mean} - {least}) * {place} / {below} "
        f"else {mean} + (wait_ms - {mean}) * ({place} - {below}) / (1 - {below}) end"
    )
    count = f"{inner} * (step + 1) div {steps} - {inner} * step div {steps}"
    row = "named_struct('wait_ms', cast({} as double), 'messages', cast({} as bigint))"
    return f.expr(
        f"case when messages < 2 or {least} = wait_ms then array({row.format('wait_ms', 'messages')}) "
        f"when messages = 2 then array({row.format(least, 1)}, {row.format('wait_ms', 1)}) "
        f"else concat(array({row.format(least, 1)}, {row.format('wait_ms', 1)}), "
        f"transform(sequence(0, cast({steps} as int) - 1), step -> {row.format(wait, count)})) end"
    )
