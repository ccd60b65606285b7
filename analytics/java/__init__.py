"""The Java of the jobs on this machine: how it starts fast, and what it writes to.

Jobs on one machine start their own Java (`analytics/java/spark_start.py`) with options for short runs and with what is
in the user's cache directory: an archive of Spark's classes, which a process in the background
makes (`archive_maker.py`), and a Spark of links, whose Python processes import modules that have byte code.
"""
