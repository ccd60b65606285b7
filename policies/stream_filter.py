"""The consumer argument x-stream-filter: which messages of a stream a consumer wants.

Source: https://www.rabbitmq.com/docs/streams#filtering
"""

from __future__ import annotations

from typing import Any, Final

from leveret.protocol.erlang_terms import format_tuple

#: Maximum number of values of a filter.
_VALUES_MAX: Final = 1000
_LONGSTR: Final = "S"


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
