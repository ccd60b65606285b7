"""Publisher confirms of one channel, put together as RabbitMQ puts them together."""

from __future__ import annotations

from typing import Final

from protocol.methods import INDEX, encode_method

_ACK: Final = INDEX["basic.ack"]
_NACK: Final = INDEX["basic.nack"]


class Confirms:
    """Numbers the publishes of a channel and says which are confirmed.

    Publishes that are confirmed in the turn they came in cost a range, not an entry each.

    Args:
        channel: The channel's number.
    """

    __slots__ = ("_accepted", "_channel", "_last", "_refused", "_unconfirmed")

    def __init__(self, channel: int) -> None:
        self._channel = channel
        self._last = 0
        #: Ranges (first, last) to be acked with the next flush.
        self._accepted: list[tuple[int, int]] = []
        self._refused: list[int] = []
        #: Publishes that wait for something, by sequence number.
        self._unconfirmed: set[int] = set()

    @property
    def last(self) -> int:
        """Sequence number of the latest publish; 0 before the first."""
        return self._last

    def accept_next(self, count: int) -> None:
        """Number the next publishes, all of which are confirmed already; 0 numbers none."""
        if not count:
            return
        first = self._last + 1
        self._last += count
        accepted = self._accepted
        if accepted and accepted[-1][1] == first - 1:
            accepted[-1] = (accepted[-1][0], self._last)
        else:
            accepted.append((first, self._last))

    def refuse_next(self) -> None:
        """Number the next publish, which a queue has refused."""
        self._last += 1
        self._refused.append(self._last)

    def hold_next(self) -> int:
        """Number the next publish, which is confirmed later; return its number."""
        self._last += 1
        self._unconfirmed.add(self._last)
        return self._last

    def accept_held(self, number: int) -> None:
        """Confirm a publish that was held."""
        self._unconfirmed.remove(number)
        self._accepted.append((number, number))

    def flush(self) -> list[bytes]:
        """The frames that are due, acks before nacks."""
        accepted, self._accepted = self._accepted, []
        refused, self._refused = self._refused, []
        if not refused and not self._unconfirmed and len(accepted) == 1:
            first, last = accepted[0]
            return [encode_method(self._channel, _ACK, last, last > first)]
        numbers = sorted(number for first, last in accepted for number in range(first, last + 1))
        frames = []
        if len(numbers) == 1:
            frames.append(encode_method(self._channel, _ACK, numbers[0], False))
        elif numbers:
            frames += self._coalesce(numbers, refused, _ACK)
        if refused:
            # The acks have gone out by now, but RabbitMQ counts them as open here.
            frames += self._coalesce(sorted(refused), numbers, _NACK)
        return frames

    def _coalesce(self, numbers: list[int], others: list[int], method: int) -> list[bytes]:
        """One frame for all numbers below the first that is open or goes the other way, one each for the rest."""
        cutoff = min((*self._unconfirmed, *others, numbers[-1] + 1))
        settled = [number for number in numbers if number < cutoff]
        # basic.nack has a requeue bit, which servers set and clients ignore.
        rest: tuple[bool, ...] = (True,) if method == _NACK else ()
        frames = [encode_method(self._channel, method, settled[-1], True, *rest)] if settled else []
        singles = numbers[len(settled) :]
        return frames + [encode_method(self._channel, method, number, False, *rest) for number in singles]
