"""Job overflow: messages dropped, refused, rejected or dead-lettered, by minute and reason."""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from leveret.analytics.job_options import JobOptions, Results
from leveret.analytics.jobs.waits import WAIT_COLUMNS, sum_of_waits
from leveret.storage.event_format import LOSSES

_COLUMNS = ("vhost", "queue", "at", "kind", "messages", "body_bytes", *WAIT_COLUMNS, "dead_lettered", "told")
_LOSSES = sorted(kind.name.lower() for kind in LOSSES)


def run(spark: SparkSession, options: JobOptions) -> Results:
    """Count messages that were not consumed.

    Args:
        spark: The session.
        options: Queues and time.
    Returns:
        `overflow`. Reasons that end in `+dead_letter` are dead-lettered messages; those that were not routed to any
        queue count again as `dead_letter_lost`, without a waiting time. What ends in `+told` was refused or returned,
        and the publisher knows it.
    """
    events = options.table(spark, "events", _COLUMNS).where(f.col("kind").isin(*_LOSSES) | f.col("dead_lettered"))
    reason = (
        f.when(f.col("dead_lettered"), f.concat("kind", f.lit("+dead_letter")))
        .when(f.col("told"), f.concat("kind", f.lit("+told")))
        .otherwise(f.col("kind"))
    )
    has_waited = f.col("kind") != "dead_letter_lost"
    overflow = (
        events.groupBy(*options.queue_key, options.span("at"), reason.alias("reason"))
        .agg(
            f.sum("messages").alias("messages"),
            f.sum("body_bytes").alias("body_bytes"),
            f.round(f.sum(f.when(has_waited, sum_of_waits())) / f.sum("messages"), 1).alias("mean_wait_ms"),
            f.max(f.when(has_waited, f.col("wait_ms"))).alias("max_wait_ms"),
        )
        .orderBy("minute", *options.queue_key, "reason")
    )
    return {"overflow": overflow}
