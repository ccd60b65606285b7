"""Streams: the arguments of consumers (x-stream-offset, x-stream-consumer-name and x-stream-filter), and ranges.

A range has the message at its first place, and not the one at its end, so that ranges that follow each other have no
message twice. Its places are written as those where a consumer begins; see FORMS.

Source: RabbitMQ 3.10.8, observed; https://www.rabbitmq.com/docs/streams#consuming
"""

from __future__ import annotations

from datetime import UTC, datetime
from enum import Enum
from typing import Any, Final, NamedTuple

from leveret.policies.value_checks import INTEGER_TYPES, age_seconds
from leveret.protocol.erlang_terms import format_binary, format_tuple

_SECOND: Final = 1_000_000
#: Maximum length of a consumer's name in bytes.
_NAME_MAX: Final = 255
#: Maximum number of values of a filter.
_VALUES_MAX: Final = 1000
_LONGSTR: Final = "S"
#: The forms of a place, for people.
FORMS: Final = (
    "first",
    "last",
    "next",
    "an offset such as 1200",
    "a time such as 2026-01-31T12:00:00Z or @1769860800",
    "an age such as 90m or 7D (Y, M, D, h, m, s)",
)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
#: Offsets and seconds have at most so many digits, which is enough for 63 bits.
_DIGITS_MAX: Final = 18


class Begin(Enum):
    """Kind of a place in a stream."""

    FIRST = "the first message"
    LAST = "the first of the messages that arrived last, together"
    NEXT = "the next message to arrive"
    OFFSET = "an offset"
    TIME = "the first message since a time"
    AGE = "the first message that is at most so old"


class StreamPlace(NamedTuple):
    """A place in a stream.

    Args:
        value: An offset, or a time since 1970 or an age in microseconds; 0 for the other kinds.
    """

    begin: Begin
    value: int = 0


_WORDS: Final = {
    b"first": StreamPlace(Begin.FIRST),
    b"last": StreamPlace(Begin.LAST),
    b"next": StreamPlace(Begin.NEXT),
}


#: The first place of a range, and its end, unless they are given.
FIRST: Final = StreamPlace(Begin.FIRST)
NEXT: Final = StreamPlace(Begin.NEXT)


def read_stream_offset(type_name: str, value: Any) -> StreamPlace | None:
    """Return where a consumer begins; None if the value is refused.

    Args:
        type_name: Name of the value's type in error texts.
    """
    if type_name in INTEGER_TYPES:
        return StreamPlace(Begin.OFFSET, value)
    if type_name == "timestamp":
        return StreamPlace(Begin.TIME, value * _SECOND)
    if type_name not in ("longstr", "binary"):
        return None
    word = _WORDS.get(value)
    if word is not None or type_name == "binary":
        return word
    seconds = age_seconds(value.decode("latin-1"))
    return None if seconds is None else StreamPlace(Begin.AGE, seconds * _SECOND)


def stream_offset_error(type_name: str, value: Any) -> str | None:
    """Return why a value is refused, as Erlang prints it; None if it is valid.

    RabbitMQ closes the connection for some of these values, such as a text without a digit in front.
    """
    if read_stream_offset(type_name, value) is not None:
        return None
    if type_name in ("longstr", "binary"):
        shown = format_binary(value).encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape")
        return format_tuple("invalid_stream_offset_arg", format_tuple(type_name, shown))
    return format_tuple("unacceptable_type", type_name)


def consumer_name_error(type_name: str, value: Any) -> str | None:
    """Return why a value of x-stream-consumer-name is refused, as Erlang prints it; None if it is valid."""
    if type_name != "longstr":
        return format_tuple("unacceptable_type", type_name)
    try:
        text = value.decode()
    except UnicodeDecodeError:
        text = ""
    if not 0 < len(value) <= _NAME_MAX or not text:
        return f'"expected 1 to {_NAME_MAX} bytes of UTF-8"'
    return None


def read_stream_filter(type_name: str, value: Any) -> frozenset[bytes] | None:
    """Return the values of a filter; None if they are refused.

    Args:
        type_name: Name of the argument's type in error texts.
        value: A long string, or an array of them.
    """
    if type_name == "longstr":
        return frozenset((value,)) if value else None
    if type_name != "array" or not 0 < len(value) <= _VALUES_MAX:
        return None
    values = frozenset([each.value for each in value if each.kind == _LONGSTR and each.value])
    return values if len(values) == len({(each.kind, each.value) for each in value}) else None


def stream_filter_error(type_name: str, value: Any) -> str | None:
    """Return why a filter is refused, as Erlang prints it; None if it is valid.

    RabbitMQ ignores a filter that is no string, and strings of an array that are none.
    """
    if read_stream_filter(type_name, value) is not None:
        return None
    if type_name in ("longstr", "array"):
        return f'"expected a string that is not empty, or an array of 1 to {_VALUES_MAX} of them"'
    return format_tuple("unacceptable_type", type_name)


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
    word = _WORDS.get(text.encode("utf-8", "replace"))
    if word is not None:
        return word
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
