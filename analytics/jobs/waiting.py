"""The jobs backlog, deadletters and duplicates: what waits in queues."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from leveret.analytics.jobs.job_options import JobOptions, Results

_OF_BACKLOG = ("vhost", "queue", "routing_key", "enqueued_at", "body_bytes")


def run_backlog(spark: SparkSession, options: JobOptions) -> Results:
    """Count waiting messages.

    Returns:
        `backlog`: messages by queue and routing key, with the age of the oldest; `sizes`: messages by body length in
        powers of two.
    Raises:
        OptionError: There is an archive without a data directory.
    """
    options.check_live()
    options = options.with_snapshot(spark)
    messages = options.live_table(spark, "messages", _OF_BACKLOG)
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


_OF_LETTERS = (
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


def run_deadletters(spark: SparkSession, options: JobOptions) -> Results:
    """Count dead letters by their x-death headers; those that were returned to where they come from do not count.

    Returns:
        `deadletters`: `origin_queue` and `reason` are those of the latest death; `deaths` is the largest number of
        deaths of one message.
    """
    letters = options.table(spark, "messages", _OF_LETTERS).where(
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


_OF_DUPLICATES = ("vhost", "queue", "seq", "enqueued_at", "message_id", "body_bytes", "body")


def run_duplicates(spark: SparkSession, options: JobOptions) -> Results:
    """Find duplicates within each queue.

    Returns:
        `duplicates`: `same` is `message_id` or `body`, `key` the id or the SHA-256 of the body. Empty bodies do not
        count as duplicates. Over an archive, all messages that have come are compared.
    """
    messages = options.with_snapshot(spark).table(spark, "messages", _OF_DUPLICATES)
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
