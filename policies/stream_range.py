"""Ranges of a stream: from a place, up to another one. Places are written as those where a consumer begins.

A place is `first`, `last`, `next`, an offset, a time or an age; see FORMS. A range has the message at its first place,
and not the one at its end, so that ranges that follow each other have no message twice.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

from leveret.policies.ages import age_seconds
from leveret.policies.stream_offset import Begin, StreamPlace

#: The forms of a place, for people.
FORMS: Final = (
    "first",
    "last",
    "next",
    "an offset such as 1200",
    "a time such as 2026-01-31T12:00:00Z or @1769860800",
    "an age such as 90m or 7D (Y, M, D, h, m, s)",
)
_WORDS: Final = {"first": Begin.FIRST, "last": Begin.LAST, "next": Begin.NEXT}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND: Final = 1_000_000
#: Offsets and seconds have at most so many digits, which is enough for 63 bits.
_DIGITS_MAX: Final = 18


#: The first place of a range, and its end, unless they are given.
FIRST: Final = StreamPlace(Begin.FIRST)
NEXT: Final = StreamPlace(Begin.NEXT)


def read_place(name: str, value: Any) -> StreamPlace:
    """Parse a place.

    Args:
        name: What it is, for the error text.
        value: An offset as integer, or text in one of FORMS.
    Raises:
        ValueError: It has another form; the text says which there are.
    """
    found = None
    if isinstance(value, int) and not isinstance(value, bool):
        found = StreamPlace(Begin.OFFSET, value) if 0 <= value < 10**_DIGITS_MAX else None
    elif isinstance(value, str):
        found = _read_text(value.strip())
    if found is None:
        raise ValueError(f"{name} takes {', '.join(FORMS)}; not {str(value)[:100]}")
    return found


def _read_text(text: str) -> StreamPlace | None:
    if text in _WORDS:
        return StreamPlace(_WORDS[text])
    if _is_number(text):
        return StreamPlace(Begin.OFFSET, int(text))
    if text.startswith("@"):
        return StreamPlace(Begin.TIME, int(text[1:]) * _SECOND) if _is_number(text[1:]) else None
    if _is_number(text[:-1]):
        seconds = age_seconds(text)
        return None if seconds is None else StreamPlace(Begin.AGE, seconds * _SECOND)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    since = moment - _EPOCH
    return StreamPlace(Begin.TIME, (since.days * 86_400 + since.seconds) * _SECOND + since.microseconds)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX
