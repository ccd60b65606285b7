"""The tables of a data directory: read as Arrow batches (`arrow_scan.py`), and by Spark (`session.py`)."""
