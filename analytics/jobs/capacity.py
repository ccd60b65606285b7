"""Job capacity: replays the last hours of each queue with different length limits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as f

from leveret.analytics.errors import OptionError
from leveret.analytics.jobs.flow import EVENT_COLUMNS, queue_moves
from leveret.analytics.jobs.job_options import JobOptions, Results, whole_spans

_SCHEMA: Final = (
    "array<struct<max_length: bigint, messages_in: bigint, peak_messages: bigint, dropped: bigint, "
    "dropped_percent: double, first_drop_at: timestamp>>"
)
#: By default, these are replayed.
_HOURS: Final = 24
#: Default limits, as fractions of the peak length of the queue.
_PARTS: Final = (0.25, 0.5, 0.75, 1.0)
#: Kinds of departures that an actual limit caused; the replay ignores them.
_BY_LIMIT: Final = ("maxlen", "maxlen_bytes")


def check(options: JobOptions) -> tuple[float, list[int], int]:
    """Return the hours to replay, the limits to try, and when the replay starts in seconds since 1970.

    Raises:
        OptionError: A value is not a number.
    """
    try:
        hours = float(options.values.get("hours", str(_HOURS)))
        limits = [int(each) for each in options.values.get("max_length", "").split(",") if each.strip()]
        since = (options.moment - int(hours * 3_600_000_000)) // 1_000_000
    except (ValueError, OverflowError) as error:
        raise OptionError(f"hours and max_length are numbers: {error}") from error
    if hours <= 0 or min(limits, default=0) < 0:
        raise OptionError("hours is a number above 0, and no max_length is below 0")
    return hours, limits, since


def run(spark: SparkSession, options: JobOptions) -> Results:
    """Replay each queue with different length limits.

    Messages count until they are settled, as `length-counts: all` says: events do not tell when one was delivered.

    Args:
        options: `hours` is the history to replay, 24 by default. `max_length` has limits, separated by commas; the
            default is 25, 50, 75 and 100 % of the peak length of each queue without a limit.
    Returns:
        `capacity`: by queue and limit, the peak length and the number of messages that would have been dropped from
        the head. The replay has steps of one second.
    Raises:
        OptionError: A value is not a number.
    """
    hours, limits, since = check(options)
    if hours > _HOURS and options.sources is None and options.archive in (None, "auto"):
        options = replace(options, archive=str(max(0, since)))
    options, start = options.with_snapshot(spark), f.lit(since)
    moves = queue_moves(spark, options).where(~((f.col("way") == "out") & f.col("kind").isin(*_BY_LIMIT)))
    moves = moves.unionAll(_refused(spark, options, moves.columns))
    second = f.greatest(whole_spans(f.unix_micros("at"), 1_000_000), start - 1)
    # Events of deleted queues have no name and cannot be told apart.
    seconds = (
        moves.where("queue is not null")
        .groupBy(*options.queue_key, second.alias("second"), (second >= start).alias("in_window"))
        .agg(
            f.sum(f.when(f.col("way") == "in", f.col("messages")).otherwise(0)).alias("arrived"),
            f.sum(f.when(f.col("way") == "out", f.col("messages")).otherwise(0)).alias("left"),
        )
    )

    history = f.sort_array(f.collect_list(f.struct("second", "in_window", "arrived", "left"))).alias("history")
    outcomes = f.udf(lambda history: list(_outcomes(history, limits)), _SCHEMA, useArrow=False)
    capacity = (
        seconds.groupBy(*options.queue_key)
        .agg(history)
        .select(*options.queue_key, f.explode(outcomes("history")).alias("outcome"))
        .select(*options.queue_key, "outcome.*")
    )
    return {"capacity": capacity.orderBy(*options.queue_key, "max_length")}


def _refused(spark: SparkSession, options: JobOptions, columns: Sequence[str]) -> DataFrame:
    """Return refused messages as arrivals."""
    events = options.table(spark, "events", EVENT_COLUMNS).where("kind = 'refused'")
    return events.withColumn("way", f.lit("in")).select(*columns)


def _outcomes(rows: Sequence[Mapping[str, Any]], limits: Sequence[int]) -> Iterator[Row]:
    """Replay one queue with each limit."""
    unlimited = replay(rows, None)
    for limit in limits or sorted({max(1, round(unlimited["peak_messages"] * part)) for part in _PARTS}):
        yield Row(max_length=limit, **replay(rows, limit))


def replay(rows: Sequence[Mapping[str, Any]], limit: int | None) -> dict[str, Any]:
    """Replay a queue's history with a length limit.

    Args:
        rows: By ascending `second`: numbers of messages that `arrived` and `left`; `in_window` is false for the time
            before the replayed hours.
        limit: Maximum length; at the end of each second, further messages are dropped from the head. None for no limit.
    """
    depth = peak = dropped = arrived = not_leaving = 0
    first_drop: int | None = None
    for row in rows:
        if row["in_window"]:
            arrived += row["arrived"]
        depth += row["arrived"]
        # Departures of messages that the replay has dropped do not happen.
        left = row["left"]
        if not_leaving:
            cancelled = min(not_leaving, left)
            not_leaving, left = not_leaving - cancelled, left - cancelled
        depth = max(0, depth - left)
        if limit is not None and depth > limit:
            if row["in_window"]:
                dropped += depth - limit
                first_drop = row["second"] if first_drop is None else first_drop
            not_leaving += depth - limit
            depth = limit
        peak = max(peak, depth)
    return {
        "messages_in": arrived,
        "peak_messages": peak,
        "dropped": dropped,
        "dropped_percent": round(100 * dropped / arrived, 2) if arrived else 0.0,
        "first_drop_at": None if first_drop is None else datetime.fromtimestamp(first_drop, UTC),
    }
