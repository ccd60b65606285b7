"""Compaction: frees the disk space of dead messages.

Space. A segment is deleted when nothing in it is alive. `compaction/` copies live messages out of segments that are
mostly dead, so a queue uses at most twice its live data plus a constant. `DiskSpace` watches the disk and sets the
alarm. A ballast file is released to the event log when the disk is full, because acknowledgements must continue.
"""
