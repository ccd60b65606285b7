"""Queues: classic, priority and quorum queues, and streams.

A `Queue` (`core/queues/queue.py`) is what others know of one; behind it are classic queues and, beside them, streams.

Parts of a queue. A `ClassicQueue` (`classic_queue.py`) is composed: its contents are the messages in their store with
limits and expiry (`contents.py`), its outbox settles or dead-letters what is dropped (`outbox.py`), its delivery
serves the ring of its consumers and counts unacked messages (`Delivery`), and timers expire the
message at the head and the queue itself.

Its types differ by a few flags (`core/queues/traits.py`). A priority queue serves its consumers with each run rather
than at the end of the turn, so that only messages that have to wait are sorted. The sorting is a store
(`storage/stores/priority_store.py`), and so are messages returned to a quorum queue, which are delivered first
(`priority_store.py`).

Limits. A queue without limits and TTL appends and nothing else. Otherwise `ClassicQueue.publish` keeps RabbitMQ's
order of steps (refuse, try consumers, append, evict, expire), once per run. All messages of a `PublishRun` have one
size, so those that fit are a prefix of the run, and evicting after the run leaves the same messages as evicting after
each message. Eviction and expiry are sliced by time (`core/scheduling/turn.py`), one slice per turn for all queues. A
queue that still exceeds its limit delivers nothing until it is within it.

Looking, picking, jobs. `core/queues/browsing.py` goes through a queue by numbers, which messages keep while they are
delivered and requeued, and changes nothing (`stores/cursor.py`). Some of what it finds can be taken out of the middle
(`pick`): those in front become ready by number, without the redelivered flag. A job (`operations/jobs/`) does so in
steps, and waits until each is on disk; all jobs, and moves that a request waits for, take turns in one time slice of 5
ms in an iteration of the loop. A filter (`message_selector.py`) goes on in the middle of a body in a later slice. So
are single messages deleted by their keys (`operations/single_messages.py`), the numbers that readers of the files have
seen. Jobs are stored with the definitions. A replay of a stream (`replaying.py` there) takes nothing out; it stores
the number up to which its copies are on disk.

Returned messages. A classic queue puts them back to their places. A queue that counts or delays returns
(`core/queues/returns.py`) appends a copy with the new count to a store of returned messages, which is served first:
level 1 on disk, or 128 plus the priority. If it is to wait, the copy goes to a store with a schedule of its own
instead (`core/queues/returns.py`, level 2 or 255), and from there to the returned ones when it is due. Its expiry
waits in an item of the record's extension. Both stores are made when they are first needed.

A stream is a segment store (`stores/stream_store.py`) that nobody takes messages from: the same files, commits, redo
log, manifests, recovery and snapshots as a queue. Its cursor stays in front, and nothing is settled or compacted. An
offset is the number of a message in its store minus one. What retention removes is one range of dead numbers and
one event, whatever its size; its segments then go as those of acknowledged messages do. Files are grouped into units
of the size that the stream was declared with, by their sizes alone, so that the groups are the same after a restart.

Of a `StreamQueue` (`core/queues/stream_queue.py`), `StreamReaders` serve the consumers. It waits
for the sync of each turn in which it got messages, and only then delivers them. So numbers that were not synced have
been seen by nobody, and after a crash without losses it skips none.

A reader with a filter compares the header of each message in its page, in time slices, and
passes on what is wanted.

Names of consumers (`core/queues/consumer_names.py`). A name has the number of the first message that is not
acknowledged: the first of those that its active consumer has got and not settled, or the end of what it has got.
RabbitMQ takes every nack of a stream for an ack; here one with requeue counts for the name only when a later message
is acknowledged, because clients give back what they have prefetched when they cancel. Changes of a turn are records in
a store of the stream (`consumer_names.py`), in a directory of its own that names the stream's number; the last record
of a name is valid.

Each consumer has a `StreamReader`: a number, and a page of some messages that were read from there on. A reader looks
for its next page in the stream's tail (the newest messages, at most 1 MiB, kept only while there are readers), then
among the last pages that others have read, then on disk. A time is found by the arrivals of segments, then by every
64th record of one. An unacknowledged message is only its number, as it is never needed again.
`session/delivery_frames.py` puts the offset into the content header (`protocol/header_scan.py`), which is split once
for each envelope.
"""
