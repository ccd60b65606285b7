"""What waits in which queue since when, by routing key; and how large messages are."""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from leveret.storage.analytics.job_options import JobOptions, Results

_COLUMNS = ("vhost", "queue", "routing_key", "enqueued_at", "body_bytes")


def run(spark: SparkSession, options: JobOptions) -> Results:
    """Count what waits.

    Args:
        spark: The session.
        options: Which queues, and when.
    Returns:
        `backlog` by queue and routing key, with how long the oldest has waited at the moment that is asked for, and
        `sizes`: messages by powers of two of their body lengths.
    """
    options = options.at_one_moment(spark)
    messages = options.table(spark, "messages", _COLUMNS)
    backlog = messages.groupBy("vhost", "queue", "routing_key").agg(
        f.count("*").alias("messages"),
        f.sum("body_bytes").alias("body_bytes"),
        f.min("enqueued_at").alias("oldest_at"),
    )
    backlog = backlog.withColumn("oldest_age_s", f.round(options.age("oldest_at"), 3)).orderBy(
        f.desc("messages"), "vhost", "queue", "routing_key"
    )
    # 0 is for itself, 1 for 1, 2 for 2 and 3, and so on.
    power = f.when(f.col("body_bytes") == 0, -1).otherwise(f.floor(f.log2(f.col("body_bytes").cast("double"))))
    sizes = (
        messages.groupBy("vhost", "queue", power.cast("int").alias("power"))
        .agg(f.count("*").alias("messages"))
        .select(
            "vhost",
            "queue",
            f.when(f.col("power") < 0, 0).otherwise(f.pow(f.lit(2.0), "power")).cast("bigint").alias("from_bytes"),
            (f.pow(f.lit(2.0), f.col("power") + 1) - 1).cast("bigint").alias("to_bytes"),
            "messages",
        )
        .orderBy("vhost", "queue", "from_bytes")
    )
    return {"backlog": backlog, "sizes": sizes}
