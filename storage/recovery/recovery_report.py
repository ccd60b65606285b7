"""Report of what recovery found and did."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from leveret.storage.event_format import EventKind
from leveret.storage.event_log import EventLog
from leveret.storage.format import RECORD_BYTES, Edit, EditOp
from leveret.storage.segments.segment import Segment, StorePlace
from leveret.storage.stores.segment_store import StoreState


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


#: Maximum number of damaged places of a file that are listed.
_PLACES_SHOWN: Final = 5


class StoreDamage:
    """Reports damage of one store, and marks lost messages dead.

    Args:
        state: Its state; lost messages become dead.
        events: Receives events of lost messages.
        report: Receives what was found and repaired.

    Attributes:
        report: The report.
    """

    def __init__(self, place: StorePlace, state: StoreState, events: EventLog, report: RecoveryReport) -> None:
        self.report = report
        self._place = place
        self._state = state
        self._events = events
        #: Segments whose damaged places have been reported.
        self._reported: set[Segment] = set()

    def note(self, name: str, what: str, lost_messages: int = 0, uncertain: str = "") -> None:
        """Report damage of a file; see RecoveryReport.note().

        Args:
            name: Name of the file.
            what: What was found and what was done about it.
            lost_messages: Messages that were in it and are lost.
            uncertain: Why they may be fewer; empty if they are not.
        """
        self.report.note(f"{self._place.directory}/{name}", what, lost_messages, uncertain if lost_messages else "")

    def attempt(self, name: str, action: Callable[[], object]) -> None:
        """Run an action on a file; if it fails, report that and continue."""
        try:
            action()
        except OSError as error:
            self.report.failures.append(f"{self._place.directory}/{name}: {error}")

    def lose(self, first: int, end: int) -> int:
        """Record the live messages in a range as lost; return their maximum number."""
        lost = 0
        for start, stop in [*self._state.dead.live_runs(first, end)]:
            self._events.add(self._place.qid, self._place.priority, start, stop - start, EventKind.LOST, 0, 0, 0)
            self._state.dead.add(start, stop - start)
            lost += stop - start
        return lost

    def note_spans(
        self, segment: Segment, damaged: list[tuple[int, int]], places: list[tuple[int, int]], known: Edit | None
    ) -> None:
        """Record the messages in damaged places of a segment as lost.

        Args:
            segment: The segment.
            damaged: The sequence numbers before and after each place.
            places: Start and end offset of each place.
            known: Its last edit in the manifest if it was sealed.
        """
        lost = 0
        for (before, behind), (start, end) in zip(damaged, places, strict=True):
            # A record has a head at least. Which of the numbers had records cannot be told where some have none.
            lost += min(self.lose(before + 1, behind), (end - start) // RECORD_BYTES)
        if damaged and segment not in self._reported:
            # It may be read twice: to be sealed, and to be counted.
            self._reported.add(segment)
            self.report.damaged_spans += len(damaged)
            shown = [f"{start} to {end}" for start, end in places[:_PLACES_SHOWN]]
            more = f" and {len(places) - len(shown)} more places" if len(places) > len(shown) else ""
            what = f"bytes {', '.join(shown)}{more} hold no whole record"
            self.note(segment.name, what, lost, self.uncertainty(known))

    def uncertainty(self, known: Edit | None) -> str:
        """Return why fewer messages of a segment may be lost than numbers are missing; empty if all are lost.

        Args:
            known: Its last edit in the manifest; None if it was written to until the end.
        """
        reasons: list[str] = []
        if known is None:
            reasons.append("it was written to until the end, and not all need have been confirmed")
        elif known.op != EditOp.COMPACTED and known.last_seq - known.first_seq + 1 != known.records:
            reasons.append("some of their numbers may have been those of transient messages")
        if self.report.lacks_events:
            reasons.append("some may have been acknowledged, as events are missing")
        return "; ".join(reasons)
