"""The jobs overflow, latency, throughput and capacity: what has come and gone, and would have with other limits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as f

from leveret.analytics.errors import OptionError
from leveret.analytics.jobs.job_options import JobOptions, Results, whole_spans
from leveret.storage.event_format import LOSSES

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


_OF_OVERFLOW = ("vhost", "queue", "at", "kind", "messages", "body_bytes", *WAIT_COLUMNS, "dead_lettered", "told")
_LOSSES = sorted(kind.name.lower() for kind in LOSSES)


def run_overflow(spark: SparkSession, options: JobOptions) -> Results:
    """Count messages that were not consumed.

    Returns:
        `overflow`. Reasons that end in `+dead_letter` are dead-lettered messages; those that were not routed to any
        queue count again as `dead_letter_lost`, without a waiting time. What ends in `+told` was refused or returned,
        and the publisher knows it.
    """
    events = options.table(spark, "events", _OF_OVERFLOW).where(f.col("kind").isin(*_LOSSES) | f.col("dead_lettered"))
    reason = (
        f.when(f.col("dead_lettered"), f.concat("kind", f.lit("+dead_letter")))
        .when(f.col("told"), f.concat("kind", f.lit("+told")))
        .otherwise(f.col("kind"))
    )
    has_waited = f.col("kind") != "dead_letter_lost"
    overflow = (
        events.groupBy(*options.queue_key, options.span("at"), reason.alias("reason"))
        .agg(
            f.sum("messages").alias("messages"),
            f.sum("body_bytes").alias("body_bytes"),
            f.round(f.sum(f.when(has_waited, sum_of_waits())) / f.sum("messages"), 1).alias("mean_wait_ms"),
            f.max(f.when(has_waited, f.col("wait_ms"))).alias("max_wait_ms"),
        )
        .orderBy("minute", *options.queue_key, "reason")
    )
    return {"overflow": overflow}


_OF_LATENCY = ("vhost", "queue", "at", "kind", "messages", *WAIT_COLUMNS)


def run_latency(spark: SparkSession, options: JobOptions) -> Results:
    """Calculate percentiles of waiting times.

    Returns:
        `latency`. Of messages that were acknowledged together the log has the shortest and the longest wait and the
        sum of all; the others count as waits between these that have this sum.
    """
    events = options.table(spark, "events", _OF_LATENCY).where(f.col("kind").isin("ack", "auto_ack"))
    waits = events.withColumn("each", f.explode(each_wait())).select(*options.queue_key, "at", "each.*")
    shares = f.array(f.lit(0.5), f.lit(0.9), f.lit(0.99))
    found = waits.groupBy(*options.queue_key, options.span("at")).agg(
        f.sum("messages").alias("messages"),
        f.percentile("wait_ms", shares, f.col("messages")).alias("shares"),
        f.max("wait_ms").alias("max_ms"),
    )
    latency = found.select(
        *options.queue_key,
        "minute",
        "messages",
        *(f.round(f.col("shares")[at], 1).alias(name) for at, name in enumerate(("p50_ms", "p90_ms", "p99_ms"))),
        "max_ms",
    ).orderBy("minute", *options.queue_key)
    return {"latency": latency}


_MESSAGES = ("vhost", "queue", "enqueued_at", "body_bytes")
#: Columns that are read from events.
_OF_MOVES: Final = ("vhost", "queue", "exchange", "at", "kind", "messages", "body_bytes", "stored", *WAIT_COLUMNS)
#: Kinds of events that are not departures. A message that was returned to the tail is still in the queue.
_STAYS = ("requeue", "returned", "refused", "unroutable", "dead_letter_lost")


def run_throughput(spark: SparkSession, options: JobOptions) -> Results:
    """Count arrivals and departures.

    Returns:
        `throughput`.
    """
    moves = _queue_moves(spark, options)
    throughput = (
        moves.groupBy(*options.queue_key, options.span("at"))
        .agg(
            *(
                f.sum(f.when(f.col("way") == way, f.col(column)).otherwise(0)).alias(f"{column}_{way}")
                for way in ("in", "out")
                for column in ("messages", "body_bytes")
            )
        )
        .orderBy("minute", *options.queue_key)
    )
    return {"throughput": throughput}


def _queue_moves(spark: SparkSession, options: JobOptions) -> DataFrame:
    """Return arrivals and departures with columns of the queue, at, kind, way, messages, body_bytes.

    Waiting messages have their arrival time. For messages that have left, it is calculated from the time of the event
    and the mean waiting time of those that left together, which is exact to a tenth or 100 ms. Messages that were
    purged together, or deleted with their queue, count as having arrived with the oldest of them.

    The messages of an archive are all that have come, and have their arrival time. Only for those that were never
    written to a file it is calculated. A message that was returned to the tail is there twice, so one is taken off.
    """
    options = options.with_snapshot(spark)
    there = options.table(spark, "messages", _MESSAGES).select(
        *options.queue_key,
        f.col("enqueued_at").alias("at"),
        f.lit("there").alias("kind"),
        f.lit("in").alias("way"),
        f.lit(1).cast("bigint").alias("messages"),
        "body_bytes",
    )
    # What delayed messages do in their exchange is not of a queue.
    events = options.table(spark, "events", _OF_MOVES).where("exchange is null")
    columns = (*options.queue_key, "at", "kind", "way", "messages", "body_bytes")
    gone = events.where(~f.col("kind").isin(*_STAYS))
    departures = gone.withColumn("way", f.lit("out")).select(*columns)
    mean_wait = sum_of_waits() / f.col("messages")
    arrived_at = f.timestamp_micros(f.unix_micros("at") - (mean_wait * 1000).cast("bigint"))
    known = gone if options.sources is None else gone.where("not stored")
    arrivals = there.unionAll(known.withColumn("at", arrived_at).withColumn("way", f.lit("in")).select(*columns))
    if options.sources is not None:
        returned = events.where("kind = 'returned' and stored").withColumn("way", f.lit("in"))
        less = {name: -f.col(name) for name in ("messages", "body_bytes")}
        arrivals = arrivals.unionAll(returned.withColumns(less).select(*columns))
    return arrivals.unionAll(departures)


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


def check_capacity(options: JobOptions) -> tuple[float, list[int], int]:
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


def run_capacity(spark: SparkSession, options: JobOptions) -> Results:
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
    hours, limits, since = check_capacity(options)
    if hours > _HOURS and options.sources is None and options.archive in (None, "auto"):
        options = replace(options, archive=str(max(0, since)))
    options, start = options.with_snapshot(spark), f.lit(since)
    moves = _queue_moves(spark, options).where(~((f.col("way") == "out") & f.col("kind").isin(*_BY_LIMIT)))
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
    events = options.table(spark, "events", _OF_MOVES).where("kind = 'refused'")
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
