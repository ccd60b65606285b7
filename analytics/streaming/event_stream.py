"""Streaming source of events: reads the event log, which the broker keeps for days."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from leveret.analytics.errors import AnalyticsError, report_data_loss
from leveret.analytics.option_values import LATEST
from leveret.analytics.options import Options
from leveret.analytics.selection import RowLimits
from leveret.analytics.tables.partitions import EventsPartition, event_partitions, locate_snapshot
from leveret.storage.event_format import EVENT_BYTES
from leveret.storage.event_log import EventPosition
from leveret.storage.snapshots.snapshot import EventFileView, Request, Snapshot, SnapshotMemory, take_snapshot


class EventStream:
    """Reads events after an offset, which is a position in the event log.

    Raises:
        AnalyticsError: The data directory is not local.
    """

    def __init__(self, options: Options) -> None:
        if "://" in options.path:
            raise AnalyticsError("streams need a data directory on a local or mounted file system")
        self._options = options
        #: Offset at which the last batch ends; None for an endless stream.
        self._target: dict[str, Any] | None = None
        self._memory = SnapshotMemory()

    def stop_at_latest(self) -> None:
        """Limit the stream to the events that exist now."""
        self._target = _to_json(self._take().cut.position)

    def first(self) -> dict[str, Any]:
        """Return the start offset of a new query."""
        if self._options.starting != LATEST:
            return {"file": 0, "offset": 0}
        return _to_json(self._take().cut.position)

    def advance(self, start: dict[str, Any], limit: int) -> dict[str, Any]:
        """Return the end offset of the next batch.

        Args:
            start: Start offset of the batch.
            limit: Maximum number of events; 0 for no limit.
        """
        end = self._take()
        target = self._target or _to_json(end.cut.position)
        if not limit:
            return max(start, target, key=_position)
        left = limit * EVENT_BYTES
        at = start
        for view in end.events:
            if view.file < start["file"]:
                continue
            first = max(EVENT_BYTES, start["offset"] if view.file == start["file"] else 0)
            step = min(left, max(0, view.end - first))
            left -= step
            at = {"file": view.file, "offset": first + step}
            if not left:
                break
        return max(start, min(at, target, key=_position), key=_position)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Iterator[EventsPartition]:
        """Yield the partitions between two offsets.

        Raises:
            AnalyticsError: Event files in between have been deleted, and failOnDataLoss is true.
        """
        if start == end:
            return
        snapshot = self._take()
        oldest = snapshot.events[0].file if snapshot.events else end["file"]
        if oldest > start["file"] > 0:
            gone = (
                f"events from {start['file']} to {oldest} (microseconds since 1970) are gone: the query was stopped "
                "for longer than the broker keeps events"
            )
            report_data_loss(gone, self._options.fail_on_data_loss)
        views = [
            EventFileView(view.path, view.file, end["offset"] if view.file == end["file"] else view.end, view.until)
            for view in snapshot.events
            if start["file"] <= view.file <= end["file"]
        ]
        snapshot.events[:] = views
        place, vhosts = locate_snapshot(snapshot, self._options.path), (self._options.vhost, None)
        for part in event_partitions(snapshot, place, RowLimits(), self._wanted(snapshot), vhosts):
            first = start["offset"] if part.view.file == start["file"] else 0
            if part.view.end > first:
                part.start = max(part.start, first)
                yield part

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: a stream of events holds no snapshot."""

    def stop(self) -> None:
        """Do nothing: a stream of events holds no snapshot."""

    def _take(self) -> Snapshot:
        options = self._options
        request = Request(
            messages=False,
            events=True,
            wanted=options.wants,
            described=options.described,
            link=False,
            memory=self._memory,
        )
        return take_snapshot(options.path, request)

    def _wanted(self, snapshot: Snapshot) -> frozenset[int] | None:
        if self._options.vhost is None and self._options.queue is None:
            return None
        wants = self._options.wants
        found = frozenset(qid for qid, name in snapshot.names.items() if wants(name.vhost, name.name))
        return found if self._options.queue is not None else found | {0}


def _to_json(position: EventPosition) -> dict[str, Any]:
    return {"file": position.file, "offset": position.offset}


def _position(offset: dict[str, Any]) -> tuple[int, int]:
    return offset["file"], offset["offset"]
