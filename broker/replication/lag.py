"""How far a node is behind: in operations, bytes and seconds."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import asdict, dataclass
from typing import Final, NamedTuple

#: Marks that are kept at most; of older times every second one is dropped.
_MARKS_MAX: Final = 4096


@dataclass(frozen=True, slots=True)
class Lag:
    """What a node has not on its disk yet.

    Attributes:
        operations: Number of operations.
        bytes: Bytes of their frames, about.
        seconds: Seconds since the first of them was recorded.
    """

    operations: int = 0
    bytes: int = 0
    seconds: float = 0.0

    def document(self) -> dict[str, float]:
        """Return it as fields of JSON."""
        return {f"lag_{name}": round(value, 3) for name, value in asdict(self).items()}


class _Mark(NamedTuple):
    number: int
    octets: int
    time: float


class Marks:
    """When which operations were recorded. Written by one thread, read by any.

    Args:
        number: Number of the last operation.
        octets: Bytes of all frames up to it, counted from any beginning.
        time: Now, in seconds.
    """

    def __init__(self, number: int, octets: int, time: float) -> None:
        self._marks = [_Mark(number, octets, time)]

    def note(self, number: int, octets: int, time: float) -> None:
        """Note the last operation."""
        if number > self._marks[-1].number:
            if len(self._marks) >= _MARKS_MAX:
                self._marks = self._marks[::2]
            self._marks.append(_Mark(number, octets, time))

    def lag(self, acknowledged: int, time: float) -> Lag:
        """Return how far a node is behind that has acknowledged an operation."""
        marks = self._marks
        last = marks[-1]
        if acknowledged >= last.number:
            return Lag()
        at = bisect_right(marks, acknowledged, key=lambda mark: mark.number)
        before = marks[at - 1] if at else marks[0]
        return Lag(last.number - acknowledged, last.octets - before.octets, max(0.0, time - marks[at].time))
