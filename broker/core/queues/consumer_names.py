"""The named consumers of a stream: how far each name has read, which consumer reads for it, and their log on disk.

A consumer with x-stream-consumer-name goes on where the last one of that name has left off. Of several consumers with
one name, one is active, and the others wait for their turn. RabbitMQ keeps offsets for its stream protocol only.

Each change is a record in a store of the stream; the last record of a name is valid. Records are written at the end of
the turn, as acknowledgements of queues are, and synced with what is written next, within about a second.
"""

from __future__ import annotations

import struct
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from leveret.broker.core.queues.queue import QueueConsumer, UnackedHolder
from leveret.protocol.faults import precondition_failed
from leveret.protocol.properties import encode_content_header
from leveret.storage.backings import LevelBacking
from leveret.storage.clock import Clock
from leveret.storage.event_format import EventKind
from leveret.storage.interface import Entry
from leveret.storage.message import Envelope, Message, StoredMessage
from leveret.storage.seq_ranges import SeqRanges, runs_of
from leveret.storage.stores.numbered_store import scan_all
from leveret.storage.stores.stream_store import StreamStore

#: What all records have in common.
_ENVELOPE: Final = Envelope(b"\x00\x00", encode_content_header(0), persistent=True)
#: Number of the next message, 0 for a name that was deleted; missed messages. The name follows.
_RECORD: Final = struct.Struct("<QQ")
#: Records that are read together at a start, and the largest number removed at once.
_READ: Final = 4096
_REMOVE: Final = 1024
#: Records beyond one for each name, after which the oldest ones are removed.
_SURPLUS: Final = 4096
_ALL_BYTES: Final = 1 << 62


class NameRecord(NamedTuple):
    """What is known of a name.

    Attributes:
        name: The name.
        next: Number of the next message; 0 if the name was deleted.
        missed: Number of messages that were removed before it had read them.
        changed: When it was written, in microseconds since 1970; 0 if it has not been yet.
    """

    name: str
    next: int
    missed: int
    changed: int = 0


class ConsumerNameLog:
    """Appends records to a store, and removes the oldest ones when most are not needed any more.

    Args:
        open_store: Opens the store; its argument says whether it is made if it does not exist.
    """

    __slots__ = ("_backing", "_open_store")

    def __init__(self, open_store: Callable[[bool], LevelBacking | None]) -> None:
        self._open_store = open_store
        self._backing = open_store(False)

    def load(self) -> Iterator[NameRecord]:
        """Iterate over all records, in the order in which they were written.

        Raises:
            UnreadableFileError: The system cannot read them.
        """
        if self._backing is None:
            return
        for entries in scan_all(self._backing.store, _READ):
            for _, record, _ in entries:
                if len(record.body) > _RECORD.size:
                    arrived = record.arrived_at if isinstance(record, StoredMessage) else 0
                    next_number, missed = _RECORD.unpack_from(record.body)
                    yield NameRecord(_name_in(record), next_number, missed, arrived)

    def open(self) -> None:
        """Make the store if it does not exist.

        Raises:
            ConnectionFault: RESOURCE_ERROR (506): its files cannot be created.
        """
        if self._backing is None:
            self._backing = self._open_store(True)

    def write(self, changed: Sequence[NameRecord], known: Callable[[str], NameRecord | None], count: int) -> None:
        """Append records; they are on disk at the end of the turn.

        Args:
            known: Returns what is to be in the log of a name; None if it is unknown.
            count: Number of names.
        """
        if self._backing is None:
            return
        store = self._backing.store
        self._append(changed)
        if store.ready_count > count + _SURPLUS:
            entries = store.take(_REMOVE, _ALL_BYTES)[0]
            written = {record.name for record in changed}
            names = {_name_in(record) for _, record, _ in entries} - written
            again = [record for record in map(known, sorted(names)) if record is not None]
            self._append(again)
            store.settle(entries, EventKind.FORGOTTEN)

    def _append(self, records: Sequence[NameRecord]) -> None:
        assert self._backing is not None
        for record in records:
            body = _RECORD.pack(record.next, record.missed) + record.name.encode()
            self._backing.store.append([Message(_ENVELOPE, body)], len(body))

    def delete(self) -> None:
        """Delete the store."""
        backing, self._backing = self._backing, None
        if backing is not None:
            backing.delete()


def _name_in(record: Message) -> str:
    return record.body[_RECORD.size :].decode("utf-8", "replace")


#: Maximum number of names of a stream.
NAMES_MAX: Final = 1000
#: Messages that do not pass the filter of a consumer, at least, before this is noted without an acknowledgement.
_PASSED_MIN: Final = 1000


class ConsumerName:
    """A name, and how far it has read.

    Args:
        next_number: See Attributes.
        missed: See Attributes.
        changed: See Attributes.

    Attributes:
        name: The name.
        next: Number of the first message that has not been acknowledged.
        missed: Number of messages that retention has removed before they were delivered to it.
        changed: When `next` has changed last, in microseconds since 1970.
        active: The consumer that reads; None if there is none.
        waiting: Consumers that wait for their turn, the oldest first.
    """

    __slots__ = (
        "_read_end",
        "_returned",
        "_unacked",
        "active",
        "changed",
        "missed",
        "name",
        "next",
        "waiting",
    )

    def __init__(self, name: str, next_number: int, missed: int = 0, changed: int = 0) -> None:
        self.name = name
        self.next = next_number
        self.missed = missed
        self.changed = changed
        self.active: QueueConsumer | None = None
        self.waiting: OrderedDict[QueueConsumer, None] = OrderedDict()
        #: Numbers of the messages that the last active consumer has got and not settled.
        self._unacked = SeqRanges()
        #: Those that it has given back without acknowledging a later one.
        self._returned = SeqRanges()
        #: Number after the last message that this consumer has got.
        self._read_end = next_number

    @property
    def has_unacked(self) -> bool:
        """Whether the last active consumer has messages that it has not acknowledged."""
        return bool(self._unacked)

    @property
    def read_end(self) -> int:
        """Number after the last message that was delivered to its active consumer; `next` if there is none."""
        return self.next if self.active is None else max(self.next, self._read_end)

    def go_to(self, number: int) -> None:
        """Go on with a number, whatever was delivered before."""
        self.next = self._read_end = number
        self._unacked.clear()
        self._returned = SeqRanges()

    def delivered(self, entries: Sequence[Entry]) -> None:
        """Note that the active consumer has got messages."""
        self._unacked.add_above([*runs_of([entry[0] for entry in entries])])
        self._read_end = entries[-1][0] + 1

    def settled(self, entries: Sequence[Entry], are_returned: bool) -> bool:
        """Note that the last active consumer has settled messages; return whether `next` has changed.

        Args:
            entries: The messages.
            are_returned: Whether it has given them back. Clients do so with what they have fetched and not processed
                when they cancel a consumer. So these count only when a later message is acknowledged.
        """
        numbers = sorted([entry[0] for entry in entries])
        for first, end in runs_of(numbers):
            self._unacked.remove(first, end)
            if are_returned:
                self._returned.add(first, end)
        if self._returned and not are_returned:
            self._returned.remove(0, numbers[-1])
        return self._advance()

    def passed(self, number: int) -> bool:
        """Note that the active consumer wants no messages below a number; return whether `next` has changed."""
        self._read_end = max(self._read_end, number)
        return not self._unacked and number - self.next >= _PASSED_MIN and self._advance()

    def skip(self, number: int) -> bool:
        """Go on at a number, as messages below it were removed; return whether `next` has changed."""
        if self._unacked:
            return False
        self._returned.remove(0, number)
        self._read_end = max(self._read_end, number)
        return self._advance()

    def _advance(self) -> bool:
        number = self._unacked.first()[0] if self._unacked else self._read_end
        for first, _ in self._returned:
            return self._set_next(min(number, first))
        return self._set_next(number)

    def _set_next(self, number: int) -> bool:
        if number <= self.next:
            return False
        self.next = number
        return True


class ConsumerNames:
    """The named consumers of one stream.

    Args:
        where: The stream, for error texts.
        stream: Its messages.
        log: Keeps the names on disk.
        clock: Tells when a name has changed.

    Attributes:
        by_name: The names, in the order in which they became known.
        has_changed: Whether write() has something to do.
    """

    __slots__ = ("_changed", "_clock", "_log", "_names", "_stream", "_where", "by_name")

    def __init__(self, where: str, stream: StreamStore, log: ConsumerNameLog, clock: Clock) -> None:
        self._where = where
        self._stream = stream
        self._log = log
        self._clock = clock
        self.by_name: dict[str, ConsumerName] = {}
        #: The name of each consumer whose acknowledgements count: the active one, or the last one until it has settled
        #: what it had got.
        self._names: dict[UnackedHolder, ConsumerName] = {}
        #: Names to be written.
        self._changed: dict[str, None] = {}
        for record in log.load():
            self.by_name.pop(record.name, None)
            if record.next:
                self.by_name[record.name] = ConsumerName(*record)

    @property
    def has_changed(self) -> bool:
        """Whether write() has something to do."""
        return bool(self._changed)

    # -- consumers ----------------------------------------------------------------------------------------

    def join(self, consumer: QueueConsumer, name: str, number: int | None) -> int | None:
        """Add a consumer.

        Args:
            number: Where the name is set to if the consumer becomes active; None to go on.
        Returns:
            Number of its first message; None if it waits for its turn.
        Raises:
            ChannelFault: PRECONDITION_FAILED (406): there are too many names.
            ConnectionFault: RESOURCE_ERROR (506): the name cannot be stored.
        """
        known = self.by_name.get(name)
        if known is not None and known.active is not None:
            known.waiting[consumer] = None
            return None
        if known is None or number is not None:
            known = self.set(name, self._stream.next_number if number is None else number)
        self._begin(known, consumer)
        return known.next

    def leave(self, consumer: QueueConsumer) -> tuple[QueueConsumer, int] | None:
        """Remove a consumer.

        Returns:
            The consumer whose turn it is now, and the number of its first message; None if there is none.
        """
        known = self.name_of(consumer)
        if known is None:
            return None
        known.waiting.pop(consumer, None)
        if known.active is not consumer:
            return None
        known.active = None
        if known.waiting:
            self._names.pop(consumer, None)
            successor = known.waiting.popitem(last=False)[0]
            self._begin(known, successor)
            return successor, known.next
        if not known.has_unacked:
            self._names.pop(consumer, None)
        return None

    def _begin(self, known: ConsumerName, consumer: QueueConsumer) -> None:
        self._go_to(known, known.next)
        known.active = consumer
        self._names[consumer] = known

    def _go_to(self, known: ConsumerName, number: int) -> None:
        """Let a name go on with a number; later acknowledgements of its former consumers do not count."""
        for holder in [holder for holder, each in self._names.items() if each is known]:
            del self._names[holder]
        known.go_to(number)

    def name_of(self, consumer: QueueConsumer) -> ConsumerName | None:
        """Return the name of a consumer that is active or waits; None if it has none."""
        found = self._names.get(consumer)
        if found is not None:
            return found
        for each in self.by_name.values():
            if each.active is consumer or consumer in each.waiting:
                return each
        return None

    def delivered(self, consumer: QueueConsumer, entries: Sequence[Entry]) -> None:
        """Note that a consumer has got messages."""
        known = self._names.get(consumer)
        if known is not None:
            known.delivered(entries)

    def passed(self, consumer: QueueConsumer, number: int) -> None:
        """Note that a consumer has got all messages below a number that it wants."""
        known = self._names.get(consumer)
        if known is not None and known.passed(number):
            self._note(known)

    def settled(self, holder: UnackedHolder, entries: Sequence[Entry], are_returned: bool) -> None:
        """Note that a consumer has settled messages; see ConsumerName.settled()."""
        known = self._names.get(holder)
        if known is not None:
            if known.settled(entries, are_returned):
                self._note(known)
            if known.active is not holder and not known.has_unacked:
                del self._names[holder]

    def abandon(self, holder: UnackedHolder) -> None:
        """Note that a consumer will not settle what it has got: its channel is closed, or it took too long."""
        self._names.pop(holder, None)

    # -- names --------------------------------------------------------------------------------------------

    def set(self, name: str, number: int) -> ConsumerName:
        """Set a name, which has no active consumer, to a number; add it if it is unknown.

        Raises:
            ChannelFault: PRECONDITION_FAILED (406): there are too many names.
            ConnectionFault: RESOURCE_ERROR (506): the name cannot be stored.
        """
        known = self.by_name.get(name)
        if known is None and len(self.by_name) >= NAMES_MAX:
            raise precondition_failed(f"{self._where} has {NAMES_MAX} consumer names, the maximum; delete some of them")
        self._log.open()
        if known is None:
            known = self.by_name[name] = ConsumerName(name, number)
        self._go_to(known, max(1, number))
        self._note(known)
        return known

    def delete(self, name: str) -> None:
        """Delete a name that has no active consumer."""
        del self.by_name[name]
        self._changed[name] = None

    def count_missed(self, unread: dict[str, int]) -> None:
        """Note that messages were removed.

        Args:
            unread: What count_unread() returned before.
        """
        first = self._stream.first_number
        for name, count in unread.items():
            known = self.by_name[name]
            missed = count - self._stream.count_between(known.read_end, self._stream.next_number)
            known.missed += missed
            if known.skip(first) or missed:
                self._note(known)

    def count_unread(self) -> dict[str, int]:
        """Return the number of messages of the stream that have not been delivered to each name."""
        stream = self._stream
        end = stream.next_number
        return {name: stream.count_between(min(each.read_end, end), end) for name, each in self.by_name.items()}

    def _note(self, known: ConsumerName) -> None:
        known.changed = self._clock.now()
        self._changed[known.name] = None

    # -- disk ---------------------------------------------------------------------------------------------

    def write(self) -> None:
        """Write what has changed; to be called before the stores of the turn are written."""
        if self._changed:
            changed = [self._record(name) or NameRecord(name, 0, 0) for name in self._changed]
            self._changed.clear()
            self._log.write(changed, self._record, len(self.by_name))

    def _record(self, name: str) -> NameRecord | None:
        known = self.by_name.get(name)
        return None if known is None else NameRecord(name, known.next, known.missed)

    def close(self) -> None:
        """Forget all names: the stream has been deleted."""
        self.by_name.clear()
        self._names.clear()
        self._changed.clear()
        self._log.delete()
