"""Stores: the messages of one priority of a queue, in memory and on disk.

Stores (`storage/interface.py`) know sequence numbers: `take` hands out entries with their numbers, `settle` removes
them, `requeue` puts them back in their places.

Which queues have files. Durable queues have a directory each. The stores of other queues are in memory, and get files
when the queue becomes lazy or is paged out (`storage/backings.py`). A queue's number on disk is never reused. It is
stored in the definitions, so after a crash between two steps the definitions say which directory is valid, and
directories that no definition names are deleted.

One store (`stores/segment_store.py`) has a cursor, the messages in memory, and a log. The cursor (`stores/cursor.py`)
says which messages are ready: those that were requeued, then all from a number on. What the system cannot read is set
aside for some seconds, and then among the requeued; only a record that can be read and is damaged is lost. In memory
(`stores/ram_messages.py`) are the window, a deque of the newest messages, and single older messages by number. The log
(`segments/message_log.py`) has the segments, a durable chain, and a spill chain for messages that need not survive a
restart, and the set of dead numbers (`segments/dead_set.py`). `Paging` writes messages to the log and pages
them out of memory: by default the window has every message since the start; a lazy store empties it with every flush;
paging out removes its oldest messages. A message on disk has no Python object. Transient messages that are requeued
before they were written are single messages; above 1 MiB they are written to further chains of the spill stream,
because a chain takes ascending numbers only.
"""
