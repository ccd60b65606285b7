"""What the broker knows of its backups, from what the program that takes them reports."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any, Final, NamedTuple

log = logging.getLogger("leveret.backup")

#: Seconds by which a backup may be older than backup.interval before it is late: the program has to start, too.
_GRACE: Final = 60


class BackupRow(NamedTuple):
    """A whole backup; see leveret.analytics.backup.listing.Row."""

    time: int
    until: int
    files: int | None
    bytes: int | None
    sent: int | None
    seconds: float | None


class Backups:
    """The backups that the broker takes.

    Args:
        url: Where they are, without passwords; "" if it takes none.
        interval: Seconds from one whole backup to the next.
        now: Returns microseconds since 1970.

    Attributes:
        rows: The whole ones, oldest first.
        spans: First and last moments that can be restored, in microseconds since 1970.
        failures: How many have failed since the start.
        sent: Bytes that were sent since the start.
        error: Why the last one has failed; "" if it has not.
        node: In a cluster, the name of the node that takes them; "" if that is not known.
    """

    def __init__(self, url: str, interval: int, now: Callable[[], int]) -> None:
        self.url = url
        self._interval = interval
        self._now = now
        #: When the last one was taken, at first when the broker was started.
        self._taken = now()
        self.rows: list[BackupRow] = []
        self.spans: list[tuple[int, int]] = []
        self.failures = 0
        self.sent = 0
        self.error = ""
        self.node = ""

    @property
    def age(self) -> float:
        """Seconds since the last one was taken; since the start if none was."""
        return max(0, self._now() - self._taken) / 1_000_000

    @property
    def is_late(self) -> bool:
        """Whether the last one is older than it may be."""
        return bool(self.url) and self.age > self._interval + _GRACE

    def note_report(self, line: bytes, node: str = "") -> None:
        """Note a line that the program has written.

        Args:
            line: The line.
            node: In a cluster, the name of the node that the program runs on.
        """
        self.node = node
        found: dict[str, Any] = json.loads(line)
        if "error" in found:
            self.note_failure(found["error"])
            return
        self.spans = [(first, last) for first, last in found["spans"]]
        if "backups" in found:
            self.rows = [BackupRow(**each) for each in found["backups"]]
        self.sent += found["sent"]
        if found["time"]:
            if self.error:
                log.info("backups are taken again")
            # Not the time that it says: another node's clock may be another.
            self._taken, self.error = self._now(), ""
        elif self.spans:
            # What there was before this broker has started.
            self._taken = self.spans[-1][1]

    def note_failure(self, error: str) -> None:
        """Note that a backup has failed, or the program that takes them."""
        self.failures += 1
        self.error = error
