"""Job latency: time from publishing to acknowledgement, by queue and minute."""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from leveret.analytics.job_options import JobOptions, Results
from leveret.analytics.jobs.waits import WAIT_COLUMNS, each_wait

_COLUMNS = ("vhost", "queue", "at", "kind", "messages", *WAIT_COLUMNS)


def run(spark: SparkSession, options: JobOptions) -> Results:
    """Calculate percentiles of waiting times.

    Args:
        spark: The session.
        options: Queues and time.
    Returns:
        `latency`. Of messages that were acknowledged together the log has the shortest and the longest wait and the
        sum of all; the others count as waits between these that have this sum.
    """
    events = options.table(spark, "events", _COLUMNS).where(f.col("kind").isin("ack", "auto_ack"))
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
