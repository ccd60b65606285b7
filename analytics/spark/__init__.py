"""The data source of Spark: its readers, its session, and `read`."""
