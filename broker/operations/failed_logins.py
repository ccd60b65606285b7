"""Counts failed logins, so that a flood of them is a few lines of the audit log, and pushes nothing out of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from leveret.broker.core.events import Actor, Event
from leveret.broker.core.scheduling.timers import Timers

#: The kind of event that is counted.
FAILED_LOGIN: Final = "user.authentication.failure"
#: Seconds for which they are counted.
PERIOD: Final = 60.0
#: Pairs of user and address that are counted each by itself.
USERS_MAX: Final = 1000
#: Pairs and addresses that are counted each by itself.
ADDRESSES_MAX: Final = 2000
#: Length of user names that are counted by themselves, as they are kept.
_NAME_MAX: Final = 255


@dataclass(slots=True)
class _Count:
    """The failed logins that are not in the log yet."""

    failures: int = 0
    first: int = 0
    last: int = 0
    #: Fields of the last one.
    fields: dict[str, Any] | None = None


class FailedLogins:
    """Counts failed logins of the same user from the same address.

    The first one is logged at once. Those that follow within a minute are one event at its end, which has their number,
    and the time of the first and the last one. Of very many users only the addresses are counted, of very many
    addresses only all together, so that neither memory nor log grow with what somebody tries.

    Args:
        timers: The broker's timers.
        log: Takes the events of counted logins: `failures` is their number, `first` and `last` are milliseconds
            since 1970; the other fields are those of the last one. User or address are empty if several were counted.
    """

    def __init__(self, timers: Timers, log: Callable[[Event], None]) -> None:
        self._timers = timers
        self._log = log
        self._counts: dict[Actor, _Count] = {}

    def count(self, event: Event) -> bool:
        """Return whether a failed login is counted; the first of a minute is to be logged."""
        who = self._counted_as(event.actor)
        known = self._counts.get(who)
        if known is None:
            if not self._counts:
                self._timers.call_later(PERIOD, self._end)
            self._counts[who] = _Count()
            return False
        known.failures += 1
        known.first = known.first or event.time
        known.last = event.time
        known.fields = dict(event.fields) if who == event.actor else {"name": who.user}
        return True

    def close(self) -> None:
        """Log what is counted."""
        for who, known in self._counts.items():
            if known.failures:
                about = dict(known.fields or {})
                if known.failures > 1:
                    about |= {"failures": known.failures, "first": known.first, "last": known.last}
                self._log(Event(FAILED_LOGIN, known.last, who, False, about))

    def _counted_as(self, actor: Actor) -> Actor:
        """Return who stands for the user and address of a failed login."""
        if len(actor.user) <= _NAME_MAX and (actor in self._counts or len(self._counts) < USERS_MAX):
            return actor
        address = Actor("", actor.host)
        return address if address in self._counts or len(self._counts) < ADDRESSES_MAX else Actor("")

    def _end(self) -> None:
        """Log what was counted; where it goes on, counting does."""
        self.close()
        self._counts = {who: _Count() for who, known in self._counts.items() if known.failures}
        if self._counts:
            self._timers.call_later(PERIOD, self._end)
