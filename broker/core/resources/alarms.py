"""Resource alarms: while one is set, publishing connections are blocked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from leveret.storage.callbacks import call_each

#: Resource names in the reason of connection.blocked.
_REASONS: Final = {"copies": "copies", "memory": "memory", "disk": "disk"}


class Alarms:
    """The alarms that are set, and callbacks for when the last one clears.

    Attributes:
        any: Whether an alarm is set; read on the path of every message.
        on_change: Called when the alarm of a resource is set or cleared, with its name and whether it is set.
    """

    __slots__ = ("_blocked", "_set", "any", "on_change")

    def __init__(self) -> None:
        self._set: set[tuple[str, str]] = set()
        self._blocked: dict[int, Callable[[], None]] = {}
        self.any = False
        self.on_change: Callable[[str, bool], None] = _ignore

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
            resource: ``memory``, ``disk`` or ``copies``.
            cause: The reason; the alarm remains set until all its causes are cleared.
        """
        is_new = resource not in self.resources
        self._set.add((resource, cause))
        self.any = True
        if is_new:
            self.on_change(resource, True)

    def clear(self, resource: str, cause: str = "") -> None:
        """Clear the alarm of a resource for one cause. Once no alarm is set, all blocked connections resume."""
        was_set = resource in self.resources
        self._set.discard((resource, cause))
        if was_set and resource not in self.resources:
            self.on_change(resource, False)
        self.any = bool(self._set)
        if not self.any:
            waiting, self._blocked = self._blocked, {}
            call_each(waiting.values(), "after an alarm was cleared")

    def wait(self, connection: object, resume: Callable[[], None]) -> None:
        """Call resume once no alarm is set."""
        self._blocked[id(connection)] = resume

    def forget(self, connection: object) -> None:
        """Drop the callback of a closed connection."""
        self._blocked.pop(id(connection), None)


def _ignore(resource: str, is_set: bool) -> None:
    """Do nothing."""
