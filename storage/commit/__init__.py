"""Commits: syncs written data before waiting callbacks such as confirms are called.

End of a turn (`MessageStores.write`). Every dirty store writes once, then the event log. If a publisher waits, a
commit group goes to the committer thread, which syncs and calls back. A channel in confirm mode notes which of its
numbers wait (`Confirms.hold_next`). A message that is settled before it was written is never written.

Messages that move. Dead letters, messages returned to a quorum queue, delayed messages that are due and
`move_messages` are copied from one store to another. For a moment they are in both, never in none (`commits.py`).
Settling the original removes it from all counts, but its event is not written yet and its record still counts as live
for compaction and checkpoints (`stores/settlement.py`). When all stores have written, the turn starts a commit group
with the copies, even if no publisher waits. When the group calls back, and the definitions that there were at its
start are written, since a queue that a crash undoes takes the copies with it, the events are written, and segments
without live messages are deleted. So no sync of the event log, which all queues share, can remove an original whose
copy is not on disk. A crash in between leaves both: dead-lettering is at-least-once here. On a full disk the copies
cannot be written, no group starts, and the originals stay. A tick names the originals that have copies, so that a
snapshot has each message once; recovery does not look at that. With `storage.sync: interval` the originals wait for
the next sync, with `off` for nothing. A clean stop waits for the group, and so does deleting a queue that messages are
leaving.

A write that failed is retried with the next one, and once a second. A file whose sync failed is not trusted again.

Syncs (`commit/`). One file is synced directly, a few files in threads. From three segments in a group on, if each has
little data, the group is copied to the shared redo log (`commit/redo_log.py`) and only that is synced. `storage.sync`
says whether confirms wait for syncs (`always`), syncs happen at intervals, or the operating system decides.
"""
