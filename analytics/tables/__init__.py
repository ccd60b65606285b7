"""Tables of data directories and archives: which parts a query reads, and how they become record batches.

Tables (`analytics/`) are read in one sequence, for Spark and for Arrow, for data directories and for archives: options
(`options.py`), a query with its columns (`tables/table_query.py`), its parts (`tables/table_plan.py`),
and the record batches of these (`tables/table_reading.py`). `leveret.scan` (`scan.py`) and the
readers of `spark/` do just this, and `leveret.dataset` (`dataset.py`) knows of each part, before it is opened, an
expression that is true of its rows, and leaves it to Arrow which parts a condition excludes. The folders are floors,
which import-linter checks: `rows/` makes arrays of records, `bodies/` of bodies, `archive/` is the files of archives,
`tables/` what a query reads, `streaming/` what has come since the last query; `spark/`, `sink/`, `jobs/`, `results/`
and `java/` are Spark's. What few queries need and takes long to load is imported late.
"""
