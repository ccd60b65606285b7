"""A process with a streaming query from a data directory to Parquet, which test_streaming.py kills.

python -m tests.spark.streaming_query DIRECTORY OUTPUT RECORDS [once]
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

from leveret.analytics import register


def main(directory: str, output: str, records: str, once: bool) -> None:
    """Run until killed, or until all has been read."""
    spark = (
        SparkSession.builder.master("local[1]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    register(spark)
    query = (
        spark.readStream.format("leveret")
        .schema("queue string, seq bigint, body binary")
        .option("maxRecordsPerTrigger", records)
        .option("reader", "lake")
        .load(directory)
        .writeStream.option("checkpointLocation", f"{output}/_checkpoint")
    )
    if once:
        query = query.trigger(availableNow=True)
    query.start(output, format="parquet").awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:] == ["once"])
