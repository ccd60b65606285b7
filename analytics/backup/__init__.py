"""Backups of a data directory, taken while the broker runs, and restored to any moment between two of them.

A backup repository belongs to one data directory. It has objects, which are parts of files and are never changed, and
manifests, which say of which objects the files of one moment consist. What an earlier backup has sent is not sent
again: segments are immutable once they are full, and before that they and the event log only grow. A manifest is
written last, in one step, so a backup that is killed leaves nothing that counts.

Read in this order: layout.py (what is in a repository), repository.py (reads and writes it), writers.py (who does),
capture.py (takes a backup, also after those of another directory), listing.py (which there are, and how long they
are kept), moments.py (the files of one moment), restore.py, republish.py, command.py (takes them again and again).
"""
