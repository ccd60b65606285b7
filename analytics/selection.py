"""Which rows a query reads: conditions that are decided before any file is opened."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple


class RowLimits(NamedTuple):
    """Limits on the selected messages.

    Attributes:
        first_seq, last_seq: Range of sequence numbers, inclusive.
        first_time, last_time: Range of times in microseconds since 1970, inclusive.
    """

    first_seq: int = 0
    last_seq: int = (1 << 63) - 1
    first_time: int = -(1 << 63)
    last_time: int = (1 << 63) - 1


_NAMES: Final = ("vhost", "queue")


@dataclass(slots=True)
class Selection:
    """Conditions that restrict what is read.

    Attributes:
        names: Allowed values of the columns `vhost` and `queue`; a column without a condition is missing.
        limits: Limits on sequence numbers and times.
        readable: Names of the queues and exchanges that may be read, by virtual host; None in place of names for all
            of a virtual host, also those that are deleted. None for everything.
    """

    names: dict[str, frozenset[str]] = field(default_factory=dict)
    limits: RowLimits = field(default_factory=RowLimits)
    readable: Mapping[str, frozenset[str] | None] | None = None

    def wants(self, vhost: str, queue: str) -> bool:
        """Return whether a queue can have rows."""
        return self.may_read(vhost, queue) and all(
            column not in self.names or value in self.names[column]
            for column, value in zip(_NAMES, (vhost, queue), strict=True)
        )

    def may_read(self, vhost: str | None, queue: str | None) -> bool:
        """Return whether rows of a queue may be read; None if a row does not say which."""
        if self.readable is None:
            return True
        if vhost is None or vhost not in self.readable:
            return False
        names = self.readable[vhost]
        return names is None or queue in names
