"""Recovery of stores at startup, checkpoints.

Recovery (`recovery/`) reads manifests, the newest checkpoint and the events after it, the redo log, and the records of
segments that were open. It repairs, quarantines, counts and continues, and logs one line per damaged file
(`recovery/recovery_report.py`), and one for each directory that the definitions or a checkpoint know and that is
missing. Damaged definitions are the exception: the broker does not start and names the copy of the last start.
`tests/crash/` kills, cuts and damages all of it.
"""
