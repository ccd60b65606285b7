"""Snapshots: read access for other processes while the broker runs.

With the formats of the files (format.py, event_format.py), names and notes of the directory and the
files of named readers this is what others read a data directory with, such as the analytics; pyproject.toml lists the
modules, and `make lint` checks that nothing else is used.

Versions: the file FORMAT names the format of a directory, and the oldest format whose readers understand it. A reader
that is older raises DataDirectoryError, which says to upgrade it; so whatever a reader would misunderstand raises that
number. Everything else is added so that older readers pass over it: flags of records and events, tags of extensions,
files beside the others, kinds of events. An unknown kind below TICK is an event of a kind without a name, one above it
is left out.

Snapshots (`snapshots/`) are what other processes read: hard links to the segments, which end at a cut: the last tick
of the event log, with a lease that the broker removes when its owner has died. A deleted file is first recorded in its
manifest and then waits in the trash, so a reader either finds it or knows that it needs a newer cut. The names of
deleted queues are kept beside the event log (`directory/queue_names.py`). A query takes its own snapshot when it is
planned, or several share one. A streaming query reads what has come since its last snapshot; what left the files in
between, it finds in the event log (`analytics/streaming/missed_messages.py`). Its snapshots have only queues whose
directories or incomplete segments are not as they were when it had read all of them (`streaming/changed_queues.py`),
and remember names, checkpoints and events of the ones before (`SnapshotMemory`). The choice is made
after the cut is found, so what is visible at the cut is in the files that are compared. An offset is complete by
itself (`tables/chains.py`): a base beside the checkpoint could be lost while the checkpoint is kept.
"""
