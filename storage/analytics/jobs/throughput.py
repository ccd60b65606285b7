"""Job throughput: messages that arrived and left, by queue and minute."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from leveret.storage.analytics.job_options import JobOptions, Results

_MESSAGES = ("vhost", "queue", "enqueued_at", "body_bytes")
#: Columns that are read from events.
EVENT_COLUMNS: Final = ("vhost", "queue", "exchange", "at", "kind", "messages", "body_bytes", "wait_ms")
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
        moves.groupBy("vhost", "queue", options.span("at"))
        .agg(
            *(
                f.sum(f.when(f.col("way") == way, f.col(column)).otherwise(0)).alias(f"{column}_{way}")
                for way in ("in", "out")
                for column in ("messages", "body_bytes")
            )
        )
        .orderBy("minute", "vhost", "queue")
    )
    return {"throughput": throughput}


def queue_moves(spark: SparkSession, options: JobOptions) -> DataFrame:
    """Return arrivals and departures with columns vhost, queue, at, kind, way, messages, body_bytes.

    Waiting messages have their arrival time. For messages that have left, it is calculated from the time of the event
    and the waiting time, which is exact to a tenth or 100 ms. Messages that were purged together, or deleted with their
    queue, count as having arrived with the oldest of them.
    """
    options = options.with_snapshot(spark)
    waiting = options.table(spark, "messages", _MESSAGES).select(
        "vhost",
        "queue",
        f.col("enqueued_at").alias("at"),
        f.lit("waiting").alias("kind"),
        f.lit("in").alias("way"),
        f.lit(1).cast("bigint").alias("messages"),
        "body_bytes",
    )
    # What delayed messages do in their exchange is not of a queue.
    events = options.table(spark, "events", EVENT_COLUMNS).where("exchange is null")
    gone = events.where(~f.col("kind").isin(*_STAYS))
    arrived_at = f.timestamp_micros(f.unix_micros("at") - f.col("wait_ms") * 1000)
    columns = ("vhost", "queue", "at", "kind", "way", "messages", "body_bytes")
    arrivals = gone.withColumn("at", arrived_at).withColumn("way", f.lit("in")).select(*columns)
    departures = gone.withColumn("way", f.lit("out")).select(*columns)
    return waiting.select(*columns).unionAll(arrivals).unionAll(departures)
