"""What a length limit would have done: the last hours of each queue, played again with limits of one's choice."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as f

from leveret.storage.analytics.errors import OptionError
from leveret.storage.analytics.job_options import JobOptions, Results
from leveret.storage.analytics.jobs.throughput import EVENT_COLUMNS, moves_of

_SCHEMA: Final = (
    "array<struct<max_length: bigint, messages_in: bigint, peak_messages: bigint, dropped: bigint, "
    "dropped_percent: double, first_drop_at: timestamp>>"
)
#: Without limits of one's choice: these parts of the longest that the queue has been.
_PARTS: Final = (0.25, 0.5, 0.75, 1.0)
#: These departures were made by a limit, so that without it they would not have been.
_BY_LIMIT: Final = ("maxlen", "maxlen_bytes")


def run(spark: SparkSession, options: JobOptions) -> Results:
    """Find out what limits would have kept.

    Args:
        spark: The session.
        options: `hours` is how far to look back, 24 if it is not said; `max_length` are limits, separated by commas,
            by default a quarter, half, three quarters and all of the longest that each queue would have been without
            a limit.
    Returns:
        `capacity`: how long a queue would have been at most under each limit, and how many messages it would have
        dropped from its head. Seconds are the grain.
    Raises:
        OptionError: A value is not a number.
    """
    try:
        hours = float(options.values.get("hours", "24"))
        limits = [int(each) for each in options.values.get("max_length", "").split(",") if each.strip()]
        start = f.lit(int(options.moment / 1_000_000 - hours * 3600))
    except (ValueError, OverflowError) as error:
        raise OptionError(f"hours and max_length are numbers: {error}") from error
    if hours <= 0 or min(limits, default=0) < 0:
        raise OptionError("hours is a number above 0, and no max_length is below 0")
    options = options.at_one_moment(spark)
    moves = moves_of(spark, options).where(~((f.col("way") == "out") & f.col("kind").isin(*_BY_LIMIT)))
    moves = moves.unionAll(_refused(spark, options, moves.columns))
    second = f.greatest(f.floor(f.unix_micros("at") / 1_000_000).cast("bigint"), start - 1)
    # What has no name any more may be several queues.
    seconds = (
        moves.where("queue is not null")
        .groupBy("vhost", "queue", second.alias("second"), (second >= start).alias("inside"))
        .agg(
            f.sum(f.when(f.col("way") == "in", f.col("messages")).otherwise(0)).alias("came"),
            f.sum(f.when(f.col("way") == "out", f.col("messages")).otherwise(0)).alias("went"),
        )
    )

    history = f.sort_array(f.collect_list(f.struct("second", "inside", "came", "went"))).alias("history")
    replay = f.udf(lambda history: list(_outcomes(history, limits)), _SCHEMA, useArrow=False)
    capacity = (
        seconds.groupBy("vhost", "queue")
        .agg(history)
        .select("vhost", "queue", f.explode(replay("history")).alias("outcome"))
        .select("vhost", "queue", "outcome.*")
    )
    return {"capacity": capacity.orderBy("vhost", "queue", "max_length")}


def _refused(spark: SparkSession, options: JobOptions, columns: Sequence[str]) -> DataFrame:
    """What a full queue turned away, as if it had come and stayed."""
    events = options.table(spark, "events", EVENT_COLUMNS).where("kind = 'refused'")
    return events.withColumn("way", f.lit("in")).select(*columns)


def _outcomes(rows: Sequence[Mapping[str, Any]], limits: Sequence[int]) -> Iterator[Row]:
    """What each limit would have done to one queue."""
    free = play(rows, None)
    for limit in limits or sorted({max(1, round(free["peak_messages"] * part)) for part in _PARTS}):
        yield Row(max_length=limit, **play(rows, limit))


def play(rows: Sequence[Mapping[str, Any]], limit: int | None) -> dict[str, Any]:
    """Play a queue's history with a limit.

    Args:
        rows: By ascending `second`: how many messages `came` and `went`; not `inside` is what was before.
        limit: Messages above it are dropped from the head at the end of each second; None for no limit.
    """
    depth = peak = dropped = came = owed = 0
    first_drop: int | None = None
    for row in rows:
        if row["inside"]:
            came += row["came"]
        # Who was dropped cannot be consumed: its departure is one that does not happen.
        depth += row["came"]
        went = row["went"]
        if owed:
            cancelled = min(owed, went)
            owed, went = owed - cancelled, went - cancelled
        depth = max(0, depth - went)
        if limit is not None and depth > limit:
            if row["inside"]:
                dropped += depth - limit
                first_drop = row["second"] if first_drop is None else first_drop
            owed += depth - limit
            depth = limit
        peak = max(peak, depth)
    return {
        "messages_in": came,
        "peak_messages": peak,
        "dropped": dropped,
        "dropped_percent": round(100 * dropped / came, 2) if came else 0.0,
        "first_drop_at": None if first_drop is None else datetime.fromtimestamp(first_drop, UTC),
    }
