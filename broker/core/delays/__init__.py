"""Messages of exchanges x-delayed-message that are not due yet.

An exchange `x-delayed-message` has an exchange of another type inside, which has its bindings and finds destinations.
A route search that reaches it with a message that is to be delayed ends there: what keeps the messages
(`core/delays/waiting_messages.py`) is a target like a queue (`core/messages.py`), so publishing, confirms and
dead-lettering treat both alike.

Messages wait in an ordinary segment store without a cursor (`stores/numbered_store.py`): they are appended, and taken
by number. When each is due is stored as the expiry of its record, so the format is that of queues. In memory there is
a sorted index of times and numbers (`DueIndex`), 16 bytes for each message; a start reads the records
and makes it again, in slices. Times in the index are of the monotonic clock, those on disk of the system's clock.

`core/vhosts/due_messages.py` routes what is due, in time slices that all exchanges and queues of a virtual host share
(`Work`). A message is published to its queues, then settled as `routed`: that is a message that
moves, so its record goes only when the copies are on disk.
"""
