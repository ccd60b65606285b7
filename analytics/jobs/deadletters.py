"""Job deadletters: waiting dead letters by origin, reason and age."""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from leveret.analytics.job_options import JobOptions, Results

_COLUMNS = (
    "vhost",
    "queue",
    "exchange",
    "routing_key",
    "headers",
    "dead_letter_count",
    "dead_letter_reason",
    "dead_letter_queue",
    "dead_lettered_at",
    "body_bytes",
)

#: Whether a message has been returned to where it was dead-lettered: its headers still say that it was.
_RETURNED = """exists(
    from_json(headers['x-death'], 'array<struct<queue: string, exchange: string, `routing-keys`: array<string>>>'),
    death -> death.queue = queue
        or death.exchange = exchange and array_contains(death.`routing-keys`, routing_key)
)"""


def run(spark: SparkSession, options: JobOptions) -> Results:
    """Count dead letters by their x-death headers; those that were returned to where they come from do not count.

    Args:
        spark: The session.
        options: Queues and time.
    Returns:
        `deadletters`: `origin_queue` and `reason` are those of the latest death; `deaths` is the largest number of
        deaths of one message.
    """
    letters = options.table(spark, "messages", _COLUMNS).where(
        f"dead_letter_count > 0 and not coalesce({_RETURNED}, false)"
    )
    deadletters = (
        letters.groupBy(
            *options.queue_key,
            f.col("dead_letter_queue").alias("origin_queue"),
            f.col("dead_letter_reason").alias("reason"),
        )
        .agg(
            f.count("*").alias("messages"),
            f.sum("body_bytes").alias("body_bytes"),
            f.max("dead_letter_count").alias("deaths"),
            f.min("dead_lettered_at").alias("oldest_at"),
            f.max("dead_lettered_at").alias("newest_at"),
        )
        .withColumn("oldest_age_s", f.round(options.age("oldest_at"), 0))
        .orderBy(f.desc("messages"), *options.queue_key, "origin_queue", "reason")
    )
    return {"deadletters": deadletters}
