"""Archives: the messages and events of brokers as Parquet files, on any file system that fsspec knows."""
