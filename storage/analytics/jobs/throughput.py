"""How many messages came and went, by queue and minute."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from leveret.storage.analytics.job_options import JobOptions, Results

_MESSAGES = ("vhost", "queue", "enqueued_at", "body_bytes")
#: What is read of events.
EVENT_COLUMNS: Final = ("vhost", "queue", "at", "kind", "messages", "body_bytes", "wait_ms")
#: Events that are no departure from a queue. What was returned to the tail comes from there.
_STAYS = ("requeue", "returned", "refused", "unroutable", "dead_letter_lost")


def run(spark: SparkSession, options: JobOptions) -> Results:
    """Count arrivals and departures.

    Args:
        spark: The session.
        options: Which queues, and up to when.
    Returns:
        `throughput`.
    """
    moves = moves_of(spark, options)
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


def moves_of(spark: SparkSession, options: JobOptions) -> DataFrame:
    """Arrivals and departures: vhost, queue, at, kind, way, messages, body_bytes.

    What waits tells when it came. What has gone tells when it went and how long it had waited, to a tenth or 100 ms;
    what was purged together, or deleted with its queue, counts as having come when the oldest of it came.
    """
    options = options.at_one_moment(spark)
    waiting = options.table(spark, "messages", _MESSAGES).select(
        "vhost",
        "queue",
        f.col("enqueued_at").alias("at"),
        f.lit("waiting").alias("kind"),
        f.lit("in").alias("way"),
        f.lit(1).cast("bigint").alias("messages"),
        "body_bytes",
    )
    gone = options.table(spark, "events", EVENT_COLUMNS).where(~f.col("kind").isin(*_STAYS))
    came = f.timestamp_micros(f.unix_micros("at") - f.col("wait_ms") * 1000)
    columns = ("vhost", "queue", "at", "kind", "way", "messages", "body_bytes")
    arrivals = gone.withColumn("at", came).withColumn("way", f.lit("in")).select(*columns)
    departures = gone.withColumn("way", f.lit("out")).select(*columns)
    return waiting.select(*columns).unionAll(arrivals).unionAll(departures)
