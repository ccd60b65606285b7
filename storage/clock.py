"""The clock of a broker: wall-clock and monotonic time in microseconds.

Only this module reads the clock for messages, queues, files and statistics. Sockets (heartbeats, handshakes, deadlines)
and pauses of threads use real time: that of the event loop or of the module ``time``.
"""

from __future__ import annotations

from time import monotonic_ns, time

from leveret.storage.compiler_hints import mypyc_attr


@mypyc_attr(allow_interpreted_subclasses=True)
class Clock:
    """The system's clock plus an offset. Only tests advance the offset, to let hours pass in no time.

    Args:
        offset: The offset in microseconds.
    """

    __slots__ = ("_offset",)

    def __init__(self, offset: int = 0) -> None:
        self._offset = offset

    @property
    def offset(self) -> int:
        """Microseconds by which it is ahead of the system's clock."""
        return self._offset

    def now(self) -> int:
        """Return the microseconds since 1970. It goes back when the system clock is set back."""
        # Of a float, which is exact to a quarter of a microsecond: nanoseconds are a number too large to be quick.
        return int(time() * 1_000_000.0) + self._offset

    def seconds(self) -> int:
        """Return the whole seconds since 1970."""
        return self.now() // 1_000_000

    def monotonic(self) -> int:
        """Return monotonic time in microseconds, for durations."""
        return monotonic_ns() // 1000 + self._offset


class AscendingClock:
    """Timestamps for one data directory, in microseconds since 1970. They never go back. For one thread.

    After the system clock has been set back, this clock runs at half speed until the system clock has caught up.
    It does not stop, so that timeouts still expire.

    Args:
        clock: The broker's clock.
    """

    __slots__ = ("_behind_since", "_clock", "_has_own_time", "_is_held", "_last")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        #: Whether its class has a method now() of its own.
        self._has_own_time = type(clock).now is not Clock.now
        self._last = 0
        self._is_held = False
        #: Monotonic time up to which `_last` has advanced while the wall clock was behind; -1 if it is not behind.
        self._behind_since = -1

    def __call__(self) -> int:
        """Return now(), to those who take any function that tells the time."""
        return self.now()

    def now(self) -> int:
        """Return the current time; at least the last returned time."""
        if self._is_held:
            return self._last
        # Each message is given a time. Called by the name of its class, the usual method is a plain call of compiled
        # code, also for an object whose class is not compiled.
        now = self._clock.now() if self._has_own_time else Clock.now(self._clock)
        if now >= self._last:
            self._last = now
            self._behind_since = -1
        else:
            self._advance_slowly()
        return self._last

    def hold(self) -> None:
        """Stop until release() is called: what a client has sent at once has one time, which is read once."""
        self.now()
        self._is_held = True

    def release(self) -> None:
        """Go on after hold()."""
        self._is_held = False

    def _advance_slowly(self) -> None:
        monotonic = self._clock.monotonic()
        if self._behind_since < 0:
            self._behind_since = monotonic
        half = (monotonic - self._behind_since) // 2
        self._last += half
        self._behind_since += 2 * half

    def advance_past(self, time: int | None = None) -> None:
        """Advance the clock past a time.

        Args:
            time: Microseconds since 1970; the last returned time by default.
        """
        self._last = max(self._last, (self._last if time is None else time) + 1)
