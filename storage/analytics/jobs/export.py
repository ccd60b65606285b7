"""Messages to Parquet, partitioned by virtual host, queue and date; each time only what has come since."""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from leveret.storage.analytics.errors import OptionError
from leveret.storage.analytics.job_options import JobOptions, Results
from leveret.storage.analytics.session import register
from leveret.storage.analytics.whole_query import run_to_end


def run(spark: SparkSession, options: JobOptions) -> Results:
    """Write messages that have not been written yet, each once, also if a run is broken off and repeated.

    Args:
        spark: The session.
        options: `output` is the directory to write to, which also remembers what has been written (`_checkpoint`);
            `max_records` is how many messages go into a batch, 100,000 if it is not said.
    Returns:
        `export`: how many messages are there now, by virtual host, queue and date.
    Raises:
        OptionError: There is no output directory, or a moment in the past is asked for.
    """
    if options.output is None:
        raise OptionError("say where to write: --output DIR")
    if options.as_of is not None:
        raise OptionError("an export goes on from the last one, so that it has no --as-of")
    register(spark)
    source = spark.readStream.format("leveret").options(**options.source_options)
    messages = source.option("maxRecordsPerTrigger", options.values.get("max_records", "100000")).load(options.location)
    # Whatever the session's time zone is: two runs are to put a message into the same directory.
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
