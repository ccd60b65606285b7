"""Job sql: runs a query over the tables, which are temporary views."""

from __future__ import annotations

from pyspark.sql import SparkSession

from leveret.storage.analytics.columns import TABLES
from leveret.storage.analytics.errors import OptionError
from leveret.storage.analytics.job_options import JobOptions, Results


def run(spark: SparkSession, options: JobOptions) -> Results:
    """Run a query.

    Args:
        spark: The session.
        options: `query` is the SQL text; its tables are `messages`, `delayed`, `events`, `segments` and `queues`.
    Returns:
        `sql`.
    Raises:
        OptionError: The query is missing.
    """
    query = options.values.get("query", "").strip()
    if not query:
        raise OptionError("the query is missing: leveret-analytics sql --query 'select queue, messages from queues'")
    options = options.with_snapshot(spark)
    for table in TABLES:
        options.table(spark, table).createOrReplaceTempView(table)
    return {"sql": spark.sql(query)}
