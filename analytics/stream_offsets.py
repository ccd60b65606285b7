"""The options startingOffsets and endingOffsets: which part of a stream is read.

A message of a stream has the offset of its number minus 1.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

from leveret.analytics.data_loss import report_data_loss
from leveret.analytics.errors import AnalyticsError, OptionError
from leveret.analytics.rows.record_rows import RowLimits
from leveret.analytics.times import parse_time
from leveret.storage.snapshots.snapshot import Snapshot

#: Offsets have at most so many digits.
_DIGITS_MAX: Final = 18
_FORMS: Final = "earliest, latest, an offset such as 1200, or a time such as 2026-01-31T12:00:00Z or @1769860800"


class PlaceKind(Enum):
    """Kind of a place in a stream."""

    EARLIEST = "the first message that is there"
    LATEST = "the end"
    OFFSET = "an offset"
    TIME = "the first message since a time"


class OffsetPlace(NamedTuple):
    """A place in a stream.

    Attributes:
        kind: The kind of place.
        value: The number of the message with an offset, or microseconds since 1970; 0 for the other kinds.
    """

    kind: PlaceKind
    value: int = 0

    @property
    def needs_stream(self) -> bool:
        """Whether only streams have such a place."""
        return self.kind in (PlaceKind.OFFSET, PlaceKind.TIME)


EARLIEST: Final = OffsetPlace(PlaceKind.EARLIEST)
LATEST: Final = OffsetPlace(PlaceKind.LATEST)
_WORDS: Final = {"earliest": EARLIEST, "latest": LATEST}


def parse_place(option: str, text: str) -> OffsetPlace:
    """Parse a place.

    Args:
        option: Name of the option, for the error text.
        text: One of the words, an offset, `@` and seconds since 1970, or a time in ISO 8601.
    Raises:
        OptionError: It has another form.
    """
    word, number = text.strip().lower(), text.strip()
    if word in _WORDS:
        return _WORDS[word]
    if number.isascii() and number.isdigit():
        if len(number) <= _DIGITS_MAX:
            return OffsetPlace(PlaceKind.OFFSET, int(number) + 1)
    elif number[:1] == "@" or not number.lstrip("-+").replace(".", "").isdigit():
        try:
            return OffsetPlace(PlaceKind.TIME, parse_time(number.removeprefix("@")))
        except OptionError:
            pass
    raise OptionError(f"option '{option}' takes {_FORMS}; not '{text[:100]}'")


def limits_between(start: OffsetPlace, end: OffsetPlace, limits: RowLimits) -> RowLimits:
    """Return limits that also leave out what is not between two places. The message at the end is not included.

    Args:
        start: The first message.
        end: The place after the last one.
        limits: The other limits.
    Raises:
        OptionError: The range begins at the end of a stream, or ends at its beginning.
    """
    if start.kind is PlaceKind.LATEST or end.kind is PlaceKind.EARLIEST:
        raise OptionError("startingOffsets=latest is for streaming queries, endingOffsets=earliest for none")
    first_seq, last_seq, first_time, last_time = limits
    if start.kind is PlaceKind.OFFSET:
        first_seq = max(first_seq, start.value)
    elif start.kind is PlaceKind.TIME:
        first_time = max(first_time, start.value)
    if end.kind is PlaceKind.OFFSET:
        last_seq = min(last_seq, end.value - 1)
    elif end.kind is PlaceKind.TIME:
        last_time = min(last_time, end.value - 1)
    return RowLimits(first_seq, last_seq, first_time, last_time)


def check_streams(snapshot: Snapshot, start: OffsetPlace, end: OffsetPlace) -> None:
    """Refuse a range of offsets or times of a queue that is no stream.

    Raises:
        AnalyticsError: There is such a queue among those of the snapshot.
    """
    if start.needs_stream or end.needs_stream:
        for queue in snapshot.queues:
            if not queue.is_stream:
                raise AnalyticsError(
                    f"startingOffsets and endingOffsets are for streams, and queue '{queue.name}' in virtual host "
                    f"'{queue.vhost}' is none: name a stream with the option queue, or use firstSeq, lastSeq, since "
                    "and until"
                )


def note_gap(stream: str, first: int, end: int, fails: bool) -> None:
    """Report messages of a stream that a query has not read and cannot read any more.

    Args:
        stream: Name of the stream.
        first: Number of the first message.
        end: Number after the last one.
        fails: Whether that is an error; otherwise it is logged.
    Raises:
        AnalyticsError: `fails` is set.
    """
    gone = (
        f"offsets {first - 1} to {end - 2} of stream '{stream}' are not there any more, and the query has not read "
        "them: retention has removed them"
    )
    advice = "The stream's limits say how long messages stay"
    report_data_loss(gone, fails, f"go on with offset {end - 1}", advice)
