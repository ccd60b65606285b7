"""Resource alarms: while one is set, connections that publish are not read from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

#: What connection.blocked says for each resource.
_REASONS: Final = {"memory": "memory", "disk": "disk"}


class Alarms:
    """The alarms in force, and who wants to know when the last one clears.

    Attributes:
        any: Whether an alarm is set; read on the path of every message.
    """

    __slots__ = ("_blocked", "_set", "any")

    def __init__(self) -> None:
        self._set: set[tuple[str, str]] = set()
        self._blocked: dict[int, Callable[[], None]] = {}
        self.any = False

    @property
    def resources(self) -> frozenset[str]:
        """The resources whose alarm is set."""
        return frozenset(resource for resource, _ in self._set)

    @property
    def reason(self) -> str:
        """The reason that connection.blocked gives, for example ``low on memory``."""
        return "low on " + " & ".join(_REASONS[resource] for resource in sorted(self.resources))

    def set(self, resource: str, cause: str = "") -> None:
        """Set the alarm of a resource.

        Args:
            resource: ``memory`` or ``disk``.
            cause: Why; it stays set until all causes have been cleared.
        """
        self._set.add((resource, cause))
        self.any = True

    def clear(self, resource: str, cause: str = "") -> None:
        """Clear the alarm of a resource, as far as it was set for this; the last one lets all connections go on."""
        self._set.discard((resource, cause))
        self.any = bool(self._set)
        if not self.any:
            waiting, self._blocked = self._blocked, {}
            for resume in waiting.values():
                resume()

    def wait(self, connection: object, resume: Callable[[], None]) -> None:
        """Call resume once all alarms have cleared."""
        self._blocked[id(connection)] = resume

    def forget(self, connection: object) -> None:
        """Do not call a connection that has gone."""
        self._blocked.pop(id(connection), None)
