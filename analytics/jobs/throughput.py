"""Job throughput: messages that arrived and left, by queue and minute."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from leveret.analytics.job_options import JobOptions, Results
from leveret.analytics.jobs.waits import WAIT_COLUMNS, sum_of_waits

_MESSAGES = ("vhost", "queue", "enqueued_at", "body_bytes")
#: Columns that are read from events.
EVENT_COLUMNS: Final = ("vhost", "queue", "exchange", "at", "kind", "messages", "body_bytes", "stored", *WAIT_COLUMNS)
#: Kinds of events that are not departures. A message that was returned to the tail is still in the queue.
_STAYS = ("requeue", "returned", "refused", "unroutable", "dead_letter_lost")


def run(spark: SparkSession, options: JobOptions) -> Results:
    """Count arrivals and departures.

    Args:
        spark: The session.
        options: Queues and time.
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
