"""Counts login attempts and delays answers to failed logins."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from leveret.broker.addresses import unmap_ipv4

#: Protocol names, as RabbitMQ counts attempts.
AMQP: Final = "amqp091"
HTTP: Final = "http"

#: Failures that are answered without delay, such as typing errors.
_FREE_FAILURES: Final = 3
#: The first and the longest delay, in seconds.
_FIRST_DELAY: Final = 0.25
_LONGEST_DELAY: Final = 3.0
#: The longest that an answer waits for earlier ones, in seconds.
_LONGEST_WAIT: Final = 600.0
#: Seconds without a failure after which earlier failures are forgotten.
_FORGIVEN_AFTER: Final = 60.0
#: Pairs of user and address that are tracked; the one that failed least recently is evicted first.
_SOURCES_MAX: Final = 4096


@dataclass(slots=True)
class ProtocolAttempts:
    """Login attempts over one protocol.

    Args:
        succeeded: Number of successful attempts.
        failed: Number of failed attempts.
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
        """Attempts by protocol. Every HTTP request counts as an attempt."""
        return MappingProxyType(self._by_protocol)

    def count(self, protocol: str, succeeded: bool) -> None:
        """Count an attempt.

        Args:
            protocol: AMQP or HTTP.
            succeeded: Whether the login succeeded.
        """
        attempts = self._by_protocol.setdefault(protocol, ProtocolAttempts())
        if succeeded:
            attempts.succeeded += 1
        else:
            attempts.failed += 1

    def reset(self) -> None:
        """Reset all counters to 0."""
        self._by_protocol.clear()


@dataclass(slots=True)
class _Failures:
    """Failed logins of one user from one address: their number, the time of the last one, when its answer is due."""

    count: int
    last: float
    answered: float


class LoginThrottle:
    """Delays the answers to failed logins, to slow down password guessing.

    Failures are counted by address and user, over all protocols. The first few are answered at once. Each further one
    doubles the delay, up to 3 s, the time for which AMQP keeps silent after a failed login. Answers are sent one after
    the other, so that guessing over many connections is not faster. A successful login is never delayed.
    """

    def __init__(self) -> None:
        self._failures: dict[bytes, _Failures] = {}

    def failed(self, address: str, username: str, now: float) -> float:
        """Record a failed login and return the delay of its answer in seconds.

        Args:
            address: Address of the client.
            username: The name that the client sent; such a user need not exist.
            now: Monotonic time in seconds.
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
        """Record a successful login: the user's failures from this address are forgotten."""
        self._failures.pop(_key(address, username), None)


def _key(address: str, username: str) -> bytes:
    """Return a key of fixed size for an address and a user name of any length."""
    return hashlib.sha256(f"{unmap_ipv4(address)}\0{username}".encode("utf-8", "surrogateescape")).digest()
