"""Job export: writes new messages to Parquet, partitioned by virtual host, queue and date."""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from leveret.storage.analytics.errors import OptionError
from leveret.storage.analytics.job_options import JobOptions, Results
from leveret.storage.analytics.session import register
from leveret.storage.analytics.whole_query import run_to_end


def run(spark: SparkSession, options: JobOptions) -> Results:
    """Write messages that have not been exported yet, each once, also if a run is interrupted and repeated.

    Args:
        spark: The session.
        options: `output` is the directory to write to, which also has the checkpoint (`_checkpoint`); `max_records` is
            the maximum number of messages per batch, 100,000 by default.
    Returns:
        `export`: the number of exported messages by virtual host, queue and date.
    Raises:
        OptionError: The output directory is missing, or `as_of` is set.
    """
    if options.output is None:
        raise OptionError("name the directory to write to: --output DIR")
    if options.as_of is not None:
        raise OptionError("--as-of does not apply to an export, which continues from the last one")
    register(spark)
    source = spark.readStream.format("leveret").options(**options.source_options)
    messages = source.option("maxRecordsPerTrigger", options.values.get("max_records", "100000")).load(options.location)
    # The date must not depend on the session's time zone, so that every run uses the same directories.
    date = f.date_from_unix_date(f.floor(f.unix_micros("enqueued_at") / 86_400_000_000).cast("int"))
    dated = messages.withColumn("date", date)
    writer = (
        dated.writeStream.partitionBy("vhost", "queue", "date")
        .option("checkpointLocation", f"{options.output}/_checkpoint")
        .trigger(availableNow=True)
    )
    run_to_end(lambda: writer.start(options.output, format="parquet"))
    written = spark.read.schema(dated.schema).parquet(options.output)
    counts = written.groupBy("vhost", "queue", "date").agg(f.count("*").alias("messages"))
    return {"export": counts.orderBy("vhost", "queue", "date")}
