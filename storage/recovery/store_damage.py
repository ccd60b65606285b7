"""What recovery finds damaged or lost in one store."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from leveret.storage.event_format import EventKind
from leveret.storage.event_log import EventLog
from leveret.storage.format import RECORD_BYTES, Edit, EditOp
from leveret.storage.recovery.recovery_report import RecoveryReport
from leveret.storage.segments.segment import Segment, StorePlace
from leveret.storage.stores.segment_store import StoreState

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
