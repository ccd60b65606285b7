"""Reads times that people write, in options and for jobs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Final

from leveret.analytics.errors import OptionError

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
#: The year 10000.
_SECONDS_MAX: Final = 253_402_300_800


def parse_time(text: str) -> int:
    """Parse a time; return microseconds since 1970.

    Args:
        text: A time in ISO 8601, in UTC unless it has an offset; or seconds since 1970.
    Raises:
        OptionError: The text is neither.
    """
    try:
        # A float would round the microseconds.
        seconds = Decimal(text)
    except InvalidOperation:
        seconds = Decimal("NaN")
    if seconds.is_finite() and -_SECONDS_MAX < seconds < _SECONDS_MAX:
        return int(seconds * 1_000_000)
    try:
        return microseconds(datetime.fromisoformat(text.strip()))
    except ValueError:
        raise OptionError(f"'{text}' is not a time; write 2026-01-31T12:00:00Z, or seconds since 1970") from None


def microseconds(moment: datetime) -> int:
    """Return a time in microseconds since 1970; a time without a zone is UTC."""
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    since = moment - _EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def utc_time(since: int) -> datetime:
    """Return a time that is given in microseconds since 1970; a float of its seconds would round them."""
    return _EPOCH + timedelta(microseconds=since)
