"""Looks at the messages of a queue, ready and unacked, without taking them.

Messages come in the order of their numbers, which they keep when they are delivered or requeued. So a caller that
continues from a place misses no message that is there all the time, and sees none twice. Messages that wait for their
retry come last. Those that return to a queue that counts or delays returns get new numbers: one that was seen before
may be seen again.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple

from leveret.broker.core.deduplication.header_values import QueuedValues
from leveret.broker.core.queues.queue import Queue, UnackedHolder
from leveret.storage.interface import Entry, Level, Look, Seen
from leveret.storage.message import Message
from leveret.storage.stores.priority_store import PriorityStore, ReturnsStore

#: Messages of one holder that are looked at for its oldest one.
_LOOKS_MAX: Final = 1000
_SECOND: Final = 1_000_000


def oldest_ready_age(queue: Queue) -> float | None:
    """Return the age of the oldest ready message in seconds.

    Returns:
        None if none is ready, or if it is not known yet; also for a stream, whose messages wait for nobody.
    """
    store = queue.store
    if queue.traits.keeps_messages:
        return None
    return _age(queue, store.oldest_ready()) if store.ready_count else None


def oldest_unacked_age(queue: Queue) -> float | None:
    """Return the age of the oldest unacked message in seconds, from its arrival in the queue, not its delivery.

    Returns:
        None if none is unacked, or if it is not known yet.
    """
    if not queue.unacked_count:
        return None
    store = queue.store
    known = store.oldest_taken()
    if not known:
        # Its store is in memory.
        held = (entry for holder in queue.holders() for entry in _first_ones(holder))
        known = min([at for entry in held if (at := store.arrival(entry))], default=0)
    return _age(queue, known)


def _first_ones(holder: UnackedHolder) -> Iterator[Entry]:
    """Yield the messages of a holder that may be its oldest one.

    They come in the order of delivery. So of those that had not been delivered before, the first is the oldest; those
    that had are looked at up to a limit.
    """
    is_first = True
    for entry in islice(holder.unacked_entries(), _LOOKS_MAX):
        if entry[2] or is_first:
            yield entry
        is_first = is_first and entry[2]


def _age(queue: Queue, arrived: int) -> float | None:
    return max(0, queue.host.timers.now() - arrived) / _SECOND if arrived else None


#: Messages and bytes of one step: a millisecond or two.
_STEP_MESSAGES: Final = 256
_STEP_BYTES: Final = 1 << 20
#: Unacked messages that are collected in one step.
_COLLECT_STEP: Final = 4096
#: The level of messages that wait for their retry, above all levels of stores.
WAITING: Final = 256


class Place(NamedTuple):
    """Where a message stands in its queue.

    Args:
        level: Its priority; 0 in a queue without priorities. Returned messages that are kept apart have 1, or 128 more
            than their priority; those that wait for their retry have 256.
        seq: Its number there.
    """

    level: int
    seq: int

    def __str__(self) -> str:
        return f"{self.level}.{self.seq}"


def read_place(text: str) -> Place:
    """Parse a place.

    Raises:
        ValueError: It is not the text of a place.
    """
    level, _, seq = text.partition(".")
    if not all(part.isascii() and part.isdigit() and len(part) < 20 for part in (level, seq)):
        raise ValueError(f"'{text}' is not a place such as 0.1")
    return Place(int(level), int(seq))


class Browsed(NamedTuple):
    """A message of a queue.

    Args:
        place: Where it stands.
        is_ready: Whether it is ready; otherwise it is unacked.
        redelivered: Whether it may have been delivered before; true if it is unacked.
        arrived: Its arrival in the queue in microseconds since 1970; 0 if it is unknown.
        due: If it waits for its retry, when it is due, in microseconds since 1970; otherwise 0.
    """

    place: Place
    message: Message
    is_ready: bool
    redelivered: bool
    arrived: int
    due: int = 0


def is_ready_at(queue: Queue, place: Place) -> bool:
    """Return whether a message that was ready still is."""
    level = dict(queue.store.ordered_levels()).get(place.level)
    return not queue.deleted and level is not None and level.is_ready(place.seq)


def take_out(queue: Queue, found: Sequence[Browsed]) -> list[Entry]:
    """Take ready messages of one step of a Browser, before anything else happens; the others stay as they are.

    Args:
        found: The messages, in order; at least one.
    Returns:
        Their entries, for acknowledge(). They do not count as unacked.
    """
    return queue.store.pick(found[0].place.level, [Seen(each.place.seq, *each[1:5]) for each in found])


class Browser:
    """Goes through the messages of a queue, from a place on.

    Args:
        start: The first place; None for the beginning.
        ready_only: Leave out messages that wait for their retry, and unacked ones as far as it is cheaper.
        most: Maximum number of messages of a step.

    Attributes:
        place: The place to continue from; None at the end.
        failure: Why the system could not read some messages, which were left out and may be readable later; None if it
            could read all.
    """

    def __init__(
        self, queue: Queue, start: Place | None = None, ready_only: bool = False, most: int | None = None
    ) -> None:
        self._queue = queue
        self._most = _STEP_MESSAGES if most is None else most
        self._ready_only = ready_only
        #: The level of the last step.
        self._level: int | None = None
        self._held = _Held(queue)
        self.place: Place | None = start or Place(-1, 0)
        self.failure: OSError | None = None

    def steps(self) -> Iterator[list[Browsed]]:
        """Iterate over the messages; a step takes a millisecond or two, and may have none.

        The messages of a step are those at the time of the step. The caller may do other things in between.
        """
        while self.place is not None and not self._queue.deleted:
            level = self._level_at(self.place)
            if level is None:
                yield self._look_at_waiting(self.place)
                continue
            number, store = level
            self._level = number
            start = self.place.seq if number == self.place.level else 0
            found = store.look(start, self._most, _STEP_BYTES)
            self.failure = found.failure or self.failure
            if self._ready_only:
                found = found._replace(is_complete=True)
            if not found.is_complete and not self._held.is_collected:
                yield from self._held.collect()
                # What has happened meanwhile?
                continue
            yield self._merge(number, start, found)

    def _look_at_waiting(self, place: Place) -> list[Browsed]:
        """Return some of the messages that wait for their retry, and set the next place."""
        waiting = self._queue.waiting
        if waiting is None or self._ready_only:
            self.place = None
            return []
        found = waiting.look(place.seq if place.level == WAITING else 0, self._most, _STEP_BYTES)
        self.failure = found.failure or self.failure
        self.place = None if found.is_over else Place(WAITING, found.end)
        return [
            Browsed(Place(WAITING, each.seq), each.message, False, True, each.arrived, each.message.expires_at)
            for each in found.seen
        ]

    def skip_level(self) -> None:
        """Leave out the remaining messages of the level of the last step."""
        if self.place is not None and self._level is not None and self.place.level == self._level:
            self.place = self._next_level(self._level)

    def _level_at(self, place: Place) -> tuple[int, Level] | None:
        """Return the level of a place, or the next one; None after the last one."""
        store = self._queue.store
        if place.level >= WAITING:
            return None
        upwards = not isinstance(store, PriorityStore) or isinstance(store, ReturnsStore)
        for number, level in store.ordered_levels():
            if place.level < 0 or (number >= place.level if upwards else number <= place.level):
                return number, level
        return None

    def _merge(self, level: int, start: int, found: Look) -> list[Browsed]:
        """Return what was seen together with what is held, and set the next place."""
        seen, end = found.seen, found.end
        if not found.is_complete:
            known = {each.seq for each in seen}
            held, end = self._held.between(level, start, end, known)
            seen = sorted([*[each for each in seen if each.seq < end], *held])
        is_over = found.is_over and end == found.end
        self.place = self._next_level(level) if is_over else Place(level, end)
        return [
            Browsed(Place(level, each.seq), each.message, each.is_ready, each.redelivered, each.arrived)
            for each in seen
        ]

    def _next_level(self, level: int) -> Place | None:
        numbers = [number for number, _ in self._queue.store.ordered_levels()]
        later = numbers[numbers.index(level) + 1 :]
        if later:
            return Place(later[0], 0)
        return None if self._ready_only or self._queue.waiting is None else Place(WAITING, 0)


class _Held:
    """The unacked messages that only those who hold them know.

    Attributes:
        is_collected: Whether collect() has finished.
    """

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self.is_collected = False
        #: The next delivery tag of each holder whose messages have been collected.
        self._tags: dict[UnackedHolder, int] = {}
        self._numbers: dict[int, list[int]] = {}
        self._entries: dict[tuple[int, int], Entry] = {}

    def collect(self) -> Iterator[list[Browsed]]:
        """Collect the messages in steps, which are empty."""
        for holder in self._queue.holders():
            tag = holder.next_tag()
            for count, entry in enumerate(holder.unacked_entries(), 1):
                self._add(entry)
                if count % _COLLECT_STEP == 0:
                    yield []
            self._tags[holder] = tag
        for numbers in self._numbers.values():
            numbers.sort()
        self.is_collected = True

    def between(self, level: int, first: int, end: int, known: set[int]) -> tuple[list[Seen], int]:
        """Return messages whose numbers are not known, and the end of the numbers that they are complete to.

        Args:
            first: The lowest number.
            end: The end of the numbers.
            known: Numbers that are known.
        """
        self._catch_up()
        numbers = self._numbers.get(level, [])
        found: list[Seen] = []
        for at in range(bisect_left(numbers, first), len(numbers)):
            seq = numbers[at]
            if seq >= end:
                break
            if seq in known:
                continue
            if len(found) == _STEP_MESSAGES:
                return found, seq
            entry = self._entries[level, seq]
            found.append(Seen(seq, entry[1], False, True, self._queue.store.arrival(entry)))
        return found, end

    def _catch_up(self) -> None:
        """Add what has been delivered since."""
        for holder in self._queue.holders():
            tag = self._tags.get(holder, 0)
            if tag and tag == holder.next_tag():
                continue
            for entry in holder.unacked_entries(tag):
                self._add(entry, in_order=True)
            self._tags[holder] = holder.next_tag()
        for entry in self._queue.returning():
            self._add(entry, in_order=True)

    def _add(self, entry: Entry, in_order: bool = False) -> None:
        place = self._queue.store.place_of(entry)
        if place in self._entries:
            return
        self._entries[place] = entry
        numbers = self._numbers.setdefault(place[0], [])
        if in_order:
            insort(numbers, place[1])
        else:
            numbers.append(place[1])


def note_values(queue: Queue, values: QueuedValues) -> None:
    """Note the values of all messages that are in a queue now, ready and unacked.

    It begins to drop duplicates: after a restart, or by a policy. This is done in steps; until it is finished, a
    duplicate of a message that has not been looked at yet gets in.
    """
    # Later messages are noted when they are published.
    ends = {level: store.next_seq for level, store in queue.store.ordered_levels()}
    if queue.waiting is not None:
        ends[WAITING] = queue.waiting.next_number
    steps = _add_values(values, Browser(queue), ends, values.entering)
    subject = f"values of messages of queue '{queue.name}' were noted"
    queue.host.due_work.begin_later(steps, subject)


def _add_values(values: QueuedValues, browser: Browser, ends: dict[int, int], entering: int) -> Iterator[None]:
    for found in browser.steps():
        if values.entering != entering:
            # It was purged, or drops duplicates no longer.
            return
        for each in found:
            if each.place.seq < ends.get(each.place.level, 0):
                values.add_found(each.message)
        yield
    if values.entering == entering:
        values.is_incomplete = False
