"""Places in a stream, and the consumer arguments x-stream-offset and x-stream-consumer-name.

Source: RabbitMQ 3.10.8, observed; https://www.rabbitmq.com/docs/streams#consuming
"""

from __future__ import annotations

from enum import Enum
from typing import Any, Final, NamedTuple

from leveret.policies.ages import age_seconds
from leveret.protocol.erlang_terms import format_binary, format_tuple

_SECOND: Final = 1_000_000
#: Maximum length of a consumer's name in bytes.
_NAME_MAX: Final = 255
_INTEGERS: Final = frozenset(("byte", "unsignedbyte", "short", "unsignedshort", "signedint", "unsignedint", "long"))


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
        begin: The kind of place.
        value: An offset, or a time since 1970 or an age in microseconds; 0 for the other kinds.
    """

    begin: Begin
    value: int = 0


_WORDS: Final = {
    b"first": StreamPlace(Begin.FIRST),
    b"last": StreamPlace(Begin.LAST),
    b"next": StreamPlace(Begin.NEXT),
}


def read_stream_offset(type_name: str, value: Any) -> StreamPlace | None:
    """Return where a consumer begins; None if the value is refused.

    Args:
        type_name: Name of the value's type in error texts.
        value: The value.
    """
    if type_name in _INTEGERS:
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
