"""Any SQL over the tables, which are views of their names."""

from __future__ import annotations

from pyspark.sql import SparkSession

from leveret.storage.analytics.columns import TABLES
from leveret.storage.analytics.errors import OptionError
from leveret.storage.analytics.job_options import JobOptions, Results


def run(spark: SparkSession, options: JobOptions) -> Results:
    """Run a query.

    Args:
        spark: The session.
        options: `query` is the text; `messages`, `events`, `segments` and `queues` are what it can ask.
    Returns:
        `sql`.
    Raises:
        OptionError: There is no query.
    """
    query = options.values.get("query", "").strip()
    if not query:
        raise OptionError("say what to ask: leveret-analytics sql --query 'select queue, messages from queues'")
    options = options.at_one_moment(spark)
    for table in TABLES:
        options.table(spark, table).createOrReplaceTempView(table)
    return {"sql": spark.sql(query)}
