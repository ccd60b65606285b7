"""How often someone tried to log in, and how long whoever keeps failing has to wait."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

#: Protocols by the names under which RabbitMQ counts them.
AMQP: Final = "amqp091"
HTTP: Final = "http"

#: Failures of one source that cost nothing: a script with an old password, a finger that slipped.
_FREE_FAILURES: Final = 3
_FIRST_DELAY: Final = 0.25
_LONGEST_DELAY: Final = 3.0
#: After so many seconds without a failure a source starts anew.
_FORGIVEN_AFTER: Final = 60.0
#: Sources remembered at the most; the one that failed least recently is forgotten first.
_SOURCES_MAX: Final = 4096


@dataclass(slots=True)
class ProtocolAttempts:
    """Login attempts over one protocol.

    Args:
        succeeded: Those that were let in.
        failed: Those that were not.
    """

    succeeded: int = 0
    failed: int = 0

    @property
    def total(self) -> int:
        """All attempts."""
        return self.succeeded + self.failed


class AuthAttempts:
    """Counts login attempts by protocol."""

    def __init__(self) -> None:
        self._by_protocol: dict[str, ProtocolAttempts] = {}

    @property
    def by_protocol(self) -> Mapping[str, ProtocolAttempts]:
        """Protocols over which someone has tried; HTTP counts every request."""
        return MappingProxyType(self._by_protocol)

    def count(self, protocol: str, succeeded: bool) -> None:
        """Count an attempt.

        Args:
            protocol: AMQP or HTTP.
            succeeded: Whether it was let in.
        """
        attempts = self._by_protocol.setdefault(protocol, ProtocolAttempts())
        if succeeded:
            attempts.succeeded += 1
        else:
            attempts.failed += 1

    def reset(self) -> None:
        """Count from 0 again."""
        self._by_protocol.clear()


class LoginThrottle:
    """Says how long the answer to a failed login is held back, so that guessing passwords takes time.

    The first failures of a source are answered at once; each one after them waits twice as long as the one before,
    up to 3 s, the time for which AMQP keeps silent after a failed login.
    """

    def __init__(self) -> None:
        self._failures: dict[str, tuple[int, float]] = {}

    def failed(self, source: str, now: float) -> float:
        """Learn of a failed login; return the seconds for which its answer is to wait.

        Args:
            source: Where it came from, an address.
            now: Seconds, of a clock that never goes back.
        """
        count, last = self._failures.pop(source, (0, now))
        count = 1 if now - last > _FORGIVEN_AFTER else count + 1
        self._failures[source] = count, now
        if len(self._failures) > _SOURCES_MAX:
            del self._failures[next(iter(self._failures))]
        if count <= _FREE_FAILURES:
            return 0.0
        return min(_FIRST_DELAY * 2.0 ** min(count - _FREE_FAILURES - 1, 16), _LONGEST_DELAY)

    def succeeded(self, source: str) -> None:
        """Learn of a login that was let in: the source starts anew."""
        self._failures.pop(source, None)
