"""Job backlog: waiting messages by queue and routing key, with their age and sizes."""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from leveret.analytics.job_options import JobOptions, Results

_COLUMNS = ("vhost", "queue", "routing_key", "enqueued_at", "body_bytes")


def run(spark: SparkSession, options: JobOptions) -> Results:
    """Count waiting messages.

    Args:
        spark: The session.
        options: Queues and time.
    Returns:
        `backlog`: messages by queue and routing key, with the age of the oldest; `sizes`: messages by body length in
        powers of two.
    Raises:
        OptionError: There is an archive without a data directory.
    """
    options.check_live()
    options = options.with_snapshot(spark)
    messages = options.live_table(spark, "messages", _COLUMNS)
    queue = options.queue_key
    backlog = messages.groupBy(*queue, "routing_key").agg(
        f.count("*").alias("messages"),
        f.sum("body_bytes").alias("body_bytes"),
        f.min("enqueued_at").alias("oldest_at"),
    )
    backlog = backlog.withColumn("oldest_age_s", f.round(options.age("oldest_at"), 3)).orderBy(
        f.desc("messages"), *queue, "routing_key"
    )
    # Buckets: 0, 1, 2 to 3, 4 to 7, and so on.
    power = f.when(f.col("body_bytes") == 0, -1).otherwise(f.floor(f.log2(f.col("body_bytes").cast("double"))))
    sizes = (
        messages.groupBy(*queue, power.cast("int").alias("power"))
        .agg(f.count("*").alias("messages"))
        .select(
            *queue,
            f.when(f.col("power") < 0, 0).otherwise(f.pow(f.lit(2.0), "power")).cast("bigint").alias("from_bytes"),
            (f.pow(f.lit(2.0), f.col("power") + 1) - 1).cast("bigint").alias("to_bytes"),
            "messages",
        )
        .orderBy(*queue, "from_bytes")
    )
    return {"backlog": backlog, "sizes": sizes}
