"""Jobs; each module has a function `run(spark, options)`."""
