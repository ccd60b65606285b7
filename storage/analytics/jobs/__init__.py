"""Jobs: each a module with `run(spark, options)`."""
