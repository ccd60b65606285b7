"""Job latency: time from publishing to acknowledgement, by queue and minute."""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from leveret.storage.analytics.job_options import JobOptions, Results

_COLUMNS = ("vhost", "queue", "at", "kind", "messages", "wait_ms")


def run(spark: SparkSession, options: JobOptions) -> Results:
    """Calculate percentiles of waiting times.

    Args:
        spark: The session.
        options: Queues and time.
    Returns:
        `latency`; messages acknowledged together count with their longest wait.
    """
    events = options.table(spark, "events", _COLUMNS).where(f.col("kind").isin("ack", "auto_ack"))
    shares = f.array(f.lit(0.5), f.lit(0.9), f.lit(0.99))
    found = events.groupBy(*options.queue_key, options.span("at")).agg(
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
