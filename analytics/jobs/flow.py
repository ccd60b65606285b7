"""The jobs overflow, latency and throughput: what has come and gone, by minute."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from leveret.analytics.jobs.job_options import JobOptions, Results
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
EVENT_COLUMNS: Final = ("vhost", "queue", "exchange", "at", "kind", "messages", "body_bytes", "stored", *WAIT_COLUMNS)
#: Kinds of events that are not departures. A message that was returned to the tail is still in the queue.
_STAYS = ("requeue", "returned", "refused", "unroutable", "dead_letter_lost")


def run_throughput(spark: SparkSession, options: JobOptions) -> Results:
    """Count arrivals and departures.

    Returns:
        `throughput`.
    """
    moves = queue_moves(spark, options)
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


def queue_moves(spark: SparkSession, options: JobOptions) -> DataFrame:
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
    events = options.table(spark, "events", EVENT_COLUMNS).where("exchange is null")
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
