"""The option `archive`: whether events that the broker does not keep any more are read from its archive."""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

from leveret.analytics.errors import OptionError
from leveret.analytics.rows.record_rows import RowLimits
from leveret.analytics.times import parse_time

_WIDEST: Final = RowLimits()


class ArchiveUse(Enum):
    """Which older events are read from the archive."""

    AUTO = "those that the query asks for by time"
    SINCE = "those since a time, whatever the query asks for"
    OFF = "none"


class ArchiveChoice(NamedTuple):
    """What the option says.

    Attributes:
        use: Which events are read.
        since: With SINCE, the time in microseconds since 1970.
    """

    use: ArchiveUse
    since: int = _WIDEST.first_time

    def older_than(self, oldest: int, limits: RowLimits) -> RowLimits | None:
        """Return the limits for older events; None if none are asked for.

        Args:
            oldest: Since when the broker has events, in microseconds since 1970.
            limits: The limits of the query.
        """
        if self.use is ArchiveUse.OFF:
            return None
        first = max(limits.first_time, self.since)
        # A query without a beginning asks for what the broker has, unless it ends before that.
        is_asked = first > _WIDEST.first_time or self.use is ArchiveUse.SINCE or limits.last_time < oldest
        return limits._replace(first_time=first) if is_asked and first <= oldest else None


AUTO: Final = ArchiveChoice(ArchiveUse.AUTO)
_WORDS: Final = {"auto": AUTO, "off": ArchiveChoice(ArchiveUse.OFF), "all": ArchiveChoice(ArchiveUse.SINCE)}


def parse_archive(text: str) -> ArchiveChoice:
    """Parse the option.

    Args:
        text: `auto`, `off`, `all`, or a time.
    Raises:
        OptionError: It is something else.
    """
    word = _WORDS.get(text.strip().lower())
    if word is not None:
        return word
    try:
        return ArchiveChoice(ArchiveUse.SINCE, parse_time(text))
    except OptionError:
        raise OptionError(
            f"option 'archive' is auto, off, all, or a time such as 2026-01-31T12:00:00Z, not '{text[:100]}'"
        ) from None
