"""What a queue was promised to hold, to be compared with what it holds after a crash."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

#: Where a message stands in its queue: priority, highest first, then the order of arrival. To a quorum queue, to have
#: come back is a priority.
Place = tuple[int, int]
#: What a restart has found stands before all that comes later.
_FOUND = -(1 << 40)


@dataclass(slots=True)
class Kept:
    """A message that was published and whose end was not answered yet."""

    survives: bool
    places: Sequence[Place]
    confirmed: bool = False
    leaving: bool = False
    letter: bool = False
    source: str = ""


class Ledger:
    """The promises about one queue. Messages are numbers."""

    def __init__(self, queue: str) -> None:
        self.queue = queue
        self.kept: dict[int, Kept] = {}
        self.gone: set[int] = set()
        #: Those that have gone since power was last lost: that they have need not be on the disk.
        self._unsynced: set[int] = set()

    def published(self, number: int, places: Sequence[Place], survives: bool = True, source: str = "") -> None:
        """A message is about to be published to the queue, by a client or as a dead letter of the source."""
        self.gone.discard(number)
        self.kept[number] = Kept(survives, places, source=source)

    def confirmed(self, numbers: Iterable[int]) -> None:
        """The broker has promised to keep messages."""
        for number in numbers:
            if number in self.kept:
                self.kept[number].confirmed = True

    def leaving(self, numbers: Iterable[int], letters: bool = False) -> None:
        """The client is about to ask for the end of messages."""
        for number in numbers:
            self.kept[number].leaving = True
            self.kept[number].letter = letters

    def staying(self, numbers: Iterable[int]) -> None:
        """What the client has asked for turned out not to concern these messages."""
        for number in numbers:
            self.kept[number].leaving = False

    def ended(self, numbers: Iterable[int]) -> None:
        """The broker has answered that messages are gone."""
        for number in numbers:
            if self.kept.pop(number, None) is not None:
                self.gone.add(number)
                self._unsynced.add(number)

    def moved(self, numbers: Iterable[int], places: Sequence[Place]) -> None:
        """The client is about to return messages to a queue that puts them elsewhere then."""
        for number in numbers:
            self.kept[number].places = [*self.kept[number].places, *places]

    def stands(self, numbers: Iterable[int], places: Sequence[Place]) -> None:
        """The broker has answered that messages stand here."""
        for number in numbers:
            if number in self.kept:
                self.kept[number].places = places

    def returned(self, found: Sequence[int], level: int) -> None:
        """Any message may have come back to its queue, and stand where it was found: its consumer ended first."""
        for at, number in enumerate(found):
            if number in self.kept:
                self.moved([number], [(-level, at)])

    def spare(self, found: Sequence[int]) -> list[int]:
        """Indexes of first copies of messages whose return was not answered.

        A quorum queue writes a returned message again, elsewhere; a crash in that very turn may leave both.
        """
        last = {number: at for at, number in enumerate(found)}
        return [at for at, number in enumerate(found) if last[number] > at and len(self.kept[number].places) > 1]

    def power_lost(self, found: Sequence[int]) -> list[int]:
        """Return the indexes of messages that only a loss of power explains, of all that the queue holds after one.

        These have gone, but their acknowledgement was not synced; or they are first copies of messages that stand, or
        were published as dead letters, a second time. Where the last copy of such a message stands is not known.
        """
        last = {number: at for at, number in enumerate(found)}
        for at, number in enumerate(found):
            if last[number] > at and number in self.kept:
                self.kept[number].places = ()
        back = self.gone & self._unsynced & last.keys()
        # The caller acknowledges them again.
        self._unsynced = back
        return [at for at, number in enumerate(found) if last[number] > at or number in back]

    def recovered(self, found: Sequence[int]) -> set[int]:
        """Compare with what the queue holds after a crash, and go on from there."""
        there = set(found)
        twice = [number for number, count in Counter(found).items() if count > 1]
        assert not twice, f"{self.queue}: twice: {twice}"
        back = sorted(there & self.gone)
        assert not back, f"{self.queue}: came back after their end was answered: {back}"
        unknown = sorted(there - self.kept.keys())
        assert not unknown, f"{self.queue}: never published: {unknown}"
        lost = [
            number
            for number, kept in self.kept.items()
            if kept.survives and kept.confirmed and not kept.leaving and number not in there
        ]
        assert not lost, f"{self.queue}: confirmed and lost: {lost}"
        transient = [number for number in found if not self.kept[number].survives]
        assert not transient, f"{self.queue}: transient and there: {transient}"
        self._check_order(found)
        letters = {
            number
            for number, kept in self.kept.items()
            if kept.letter and kept.confirmed and kept.survives and number not in there
        }
        self.gone |= self.kept.keys() - there
        self._unsynced |= self.kept.keys() - there
        self.kept = {number: Kept(True, [(self._level(number), _FOUND + at)], True) for at, number in enumerate(found)}
        return letters

    def _check_order(self, found: Sequence[int]) -> None:
        # Dead letters of one queue keep their order. Those of another come in between: a queue that has many hands
        # them over in slices of time, as each queue of RabbitMQ is a process of its own.
        reached: dict[str, Place] = {}
        for number in found:
            kept = self.kept[number]
            last = reached.get(kept.source, (-256, 2 * _FOUND))
            if not kept.places:
                continue
            possible = [place for place in kept.places if place > last]
            assert possible, f"{self.queue}: message {number} stands too late, after {last} {kept.source}".rstrip()
            reached[kept.source] = min(possible)

    def _level(self, number: int) -> int:
        return self.kept[number].places[0][0] if self.kept[number].places else 0
