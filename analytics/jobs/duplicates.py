"""Job duplicates: waiting messages with the same message id or the same body."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from leveret.analytics.job_options import JobOptions, Results

_COLUMNS = ("vhost", "queue", "seq", "enqueued_at", "message_id", "body_bytes", "body")


def run(spark: SparkSession, options: JobOptions) -> Results:
    """Find duplicates within each queue.

    Args:
        spark: The session.
        options: Queues and time.
    Returns:
        `duplicates`: `same` is `message_id` or `body`, `key` the id or the SHA-256 of the body. Empty bodies do not
        count as duplicates. Over an archive, all messages that have come are compared.
    """
    messages = options.with_snapshot(spark).table(spark, "messages", _COLUMNS)
    queue = options.queue_key
    by_id = _repeated(messages.where(f.col("message_id").isNotNull()), queue, "message_id", f.col("message_id"))
    by_body = _repeated(messages.where(f.col("body_bytes") > 0), queue, "body", f.sha2("body", 256))
    duplicates = by_id.unionAll(by_body).orderBy(f.desc("messages"), *queue, "same", "key")
    return {"duplicates": duplicates}


def _repeated(messages: DataFrame, queue: Sequence[str], same: str, key: Column) -> DataFrame:
    return (
        messages.groupBy(*queue, f.lit(same).alias("same"), key.alias("key"))
        .agg(
            f.count("*").alias("messages"),
            f.min("seq").alias("first_seq"),
            f.max("seq").alias("last_seq"),
            f.min("enqueued_at").alias("first_at"),
            f.max("enqueued_at").alias("last_at"),
        )
        .where("messages > 1")
    )
