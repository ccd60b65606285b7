"""When work runs: turns, timers and time slices.

Turns. While input is handled, nothing is delivered or written. Queues and connections with work register with
`core/scheduling/turn.py`, and `Turn.end` runs once per turn, by `call_soon`. Deliveries, confirms and replies of a
turn leave in one write. Operations that must see a settled state (passive declare, basic.get, purge) make the queue
deliver first. Messages that might expire before the end of the turn, with a TTL of less than a second, are delivered
as they come in. A queue delivers at most 256 messages or 256 KiB to a consumer at a time. A connection that has
collected 512 KiB of output in a turn, or whose socket is full, is congested: its consumers wait until after its write.
If a client leaves 32 MiB unread, the broker stops reading from it (`session/intake.py`).

Time. A broker has one clock, `Timers` (`core/scheduling/timers.py`, a `storage/clock.py` `Clock` with timers).
Messages, queues, statistics and files follow it; tests can advance it by hours, and due timers fire in order, each
after what the one before has started is done (`App.is_settled`). Sockets (heartbeats, handshakes, deadlines), memory
checks and the upkeep of the disk follow real time.

Long work. All of it shares one time slice of 5 ms in an iteration of the loop (`Slices`): what is due in exchanges and
queues (`Work`), events of connections that take long (`session/intake.py`), and requests over HTTP (`slices.py`).
What has taken the least time is next.
"""
