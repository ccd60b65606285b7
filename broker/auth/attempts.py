"""How often someone tried to log in, and how long a client that keeps failing has to wait."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from leveret.broker.addresses import plain

#: Protocols by the names under which RabbitMQ counts them.
AMQP: Final = "amqp091"
HTTP: Final = "http"

#: Failures that cost nothing: a script with an old password, a finger that slipped.
_FREE_FAILURES: Final = 3
_FIRST_DELAY: Final = 0.25
_LONGEST_DELAY: Final = 3.0
#: Answers wait for one another no longer than so many seconds.
_LONGEST_WAIT: Final = 600.0
#: After this many seconds without a failure none counts any more.
_FORGIVEN_AFTER: Final = 60.0
#: Users and addresses remembered at most; those that failed least recently are forgotten first.
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


@dataclass(slots=True)
class _Failures:
    """Failed logins of one user from one address: how many, when the last one was, and when its answer may leave."""

    count: int
    last: float
    answered: float


class LoginThrottle:
    """Says how long the answer to a failed login is held back, so that guessing passwords takes time.

    Failures are counted by address and user, over all protocols. The first ones are answered at once; each one after
    them takes twice as long as the one before, up to 3 s, the time for which AMQP keeps silent after a failed login.
    Their answers leave one after the other, so that guessing over many connections takes no less time. A login that is
    right is never held back.
    """

    def __init__(self) -> None:
        self._failures: dict[bytes, _Failures] = {}

    def failed(self, address: str, username: str, now: float) -> float:
        """Learn of a failed login; return the seconds for which its answer is to wait.

        Args:
            address: Where it came from.
            username: Who it was for, whether there is such a user or not.
            now: Seconds, of a clock that never goes back.
        """
        key = _key(address, username)
        failures = self._failures.pop(key, None)
        if failures is None or now - failures.last > _FORGIVEN_AFTER:
            failures = _Failures(0, now, now)
        failures.count += 1
        failures.last = now
        self._failures[key] = failures
        if len(self._failures) > _SOURCES_MAX:
            del self._failures[next(iter(self._failures))]
        doublings = failures.count - _FREE_FAILURES - 1
        if doublings < 0:
            return 0.0
        delay = min(_FIRST_DELAY * 2.0 ** min(doublings, 16), _LONGEST_DELAY)
        failures.answered = min(max(failures.answered, now) + delay, now + _LONGEST_WAIT)
        return failures.answered - now

    def succeeded(self, address: str, username: str) -> None:
        """Learn of a login that was let in: this user's failures from there are forgotten."""
        self._failures.pop(_key(address, username), None)


def _key(address: str, username: str) -> bytes:
    """Of one size, however long the name is."""
    return hashlib.sha256(f"{plain(address)}\0{username}".encode("utf-8", "surrogateescape")).digest()
