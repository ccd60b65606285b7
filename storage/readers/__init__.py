"""Named readers: what they have not read yet stays on disk.

Named readers (`readers/`). A streaming query can have a file `readers/NAME`, which it replaces whenever it has stored
a batch: the queues that it reads, and the next number of each store. The broker reads these files once a second, in
steps; what their names or contents must not be is refused with one line in the log (`readers/named_readers.py`). What
it drops goes to the trash as always, and stays there, beyond a minute and 64 MiB, while the number of its last message
is one that a reader has not reached (`disk/trash.py`); recovery keeps that trash, too. Their stores
write messages that were settled in the turn in which they came, and count them as dead at once (`Paging.keeps_dead`).
The broker writes nothing into these files; it deletes one whose reader it has not seen for too long. A query finds its
file gone, or its messages in the event log and in no file, and says so. An older version ignores the directory.
"""
