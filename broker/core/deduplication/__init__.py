"""Message deduplication: exchanges and queues that drop messages whose header x-deduplication-header they know.

A route search that reaches an exchange `x-message-deduplication` continues behind it, and makes one target of what it
finds there (`core/deduplication/filter.py`): it passes on messages that are not duplicates. So routes are cached, and
messages with different headers stay batches. Both filters, of exchanges and of queues, find the header in the encoded
properties (`locate_header` in `protocol/header_scan.py`) and compare a hash of 15 bytes. Other messages are not looked
at.

An exchange's values are in a dictionary and a deque, oldest first (`header_values.py`); those that expire before older
ones are in a heap, too. On disk (`ValueLog`) each is a record in a segment store: appended when its message is on
disk, before the confirm. Records are only removed from the front, when a third is not needed any more; values among
them that are remembered are appended again.

A queue counts the values of its messages (`core/deduplication/header_values.py`): entered before a message is appended,
released where messages leave. Messages that are there already are entered in time slices (`header_values.py`).
"""
