"""The data source of Spark, and what a session has of it: its registration, views, leases, and `read`."""
