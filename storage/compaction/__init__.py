"""Compaction: frees the disk space of dead messages."""
