"""Report of what recovery found and did."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple


class DamageReport(NamedTuple):
    """Damage of one file.

    Attributes:
        path: The file.
        what: What was found and what was done about it.
        lost_messages: Messages that were in it, are not settled, and cannot be read; an upper limit if
            `uncertain` is not empty.
        uncertain: Why they may be fewer; empty if they are not.
    """

    path: str
    what: str
    lost_messages: int
    uncertain: str = ""

    def __str__(self) -> str:
        text = f"{self.path}: {self.what}"
        if not self.lost_messages:
            return text
        if not self.uncertain:
            return f"{text}; {self.lost_messages} messages lost"
        return f"{text}; up to {self.lost_messages} messages lost: {self.uncertain}"


@dataclass(slots=True)
class RecoveryReport:
    """Findings and repairs of a recovery.

    Attributes:
        queues: Queues found.
        exchanges: Exchanges found that keep messages until they are due.
        values: Values found that exchanges remember to drop duplicates.
        messages: Living messages of queues and exchanges.
        body_bytes: Sum of their body lengths.
        lost_messages: Messages that were there once, are not settled, and cannot be read; an upper limit.
        uncertain_messages: How many of the lost messages may have been acknowledged, never confirmed, or never written.
        unfinished_messages: Messages of writes that were cut short by a loss of power before they were synced. With
            `storage.sync: always` none of them had been confirmed.
        damaged_spans: Places in segments that held no whole record.
        cut_bytes: Bytes behind the last whole record of a segment, saved to a file `.bad`.
        damaged_events: Records of the event log that could not be read; what they removed comes back.
        lacks_events: Some events cannot be read, or their file is missing.
        missing_segments: Segments that the manifest knows and that are not there.
        damage: What was wrong with which file.
        failures: What could not be done, as text with the path.
    """

    queues: int = 0
    exchanges: int = 0
    values: int = 0
    messages: int = 0
    body_bytes: int = 0
    lost_messages: int = 0
    uncertain_messages: int = 0
    unfinished_messages: int = 0
    damaged_spans: int = 0
    cut_bytes: int = 0
    damaged_events: int = 0
    lacks_events: bool = False
    missing_segments: int = 0
    damage: list[DamageReport] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def note(self, path: str, what: str, lost_messages: int = 0, uncertain: str = "") -> None:
        """Note what was wrong with a file, and count what is lost.

        Args:
            path: The file.
            what: What was found and what was done about it.
            lost_messages: Messages that were in it and are lost.
            uncertain: Why they may be fewer; empty if they are not.
        """
        self.damage.append(DamageReport(path, what, lost_messages, uncertain))
        self.lost_messages += lost_messages
        if uncertain:
            self.uncertain_messages += lost_messages

    def count(self, kind: str, messages: int, body_bytes: int) -> None:
        """Count what has stores, after these have been recovered.

        Args:
            kind: "queue", "exchange", or "deduplication" and "offsets", whose records are no messages.
            messages: What `messages` was before its stores were recovered.
            body_bytes: What `body_bytes` was before.
        """
        if kind == "queue":
            self.queues += 1
        elif kind == "exchange":
            self.exchanges += 1
        else:
            if kind == "deduplication":
                self.values += self.messages - messages
            self.messages, self.body_bytes = messages, body_bytes

    def lines(self) -> Iterator[str]:
        """Iterate over lines: one for each damaged file and each failure."""
        yield from map(str, self.damage)
        yield from self.failures

    def summary(self) -> str:
        """Return a one-line summary."""
        exchanges = f" and {self.exchanges} delayed exchanges" if self.exchanges else ""
        messages = f"{self.messages} messages ({self.body_bytes} bytes of bodies)"
        found = f"{self.queues} durable queues{exchanges} with {messages}"
        if self.values:
            found = f"{found}, {self.values} remembered values"
        if not self.damage and not self.failures:
            return found
        lost = f"up to {self.lost_messages}" if self.uncertain_messages else f"{self.lost_messages}"
        found = f"{found}; {len(self.damage)} damaged files, {lost} messages lost"
        if not self.unfinished_messages:
            return found
        return f"{found}, {self.unfinished_messages} messages whose write was cut short before it was synced"
