"""Parses JSON from clients and refuses values that cannot be written again."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, Final, NoReturn

from leveret.protocol.field_table import MAX_DEPTH

#: Values in a table sent as JSON. A table in an AMQP frame of 131,072 bytes has fewer.
VALUES_MAX: Final = 65_536


def parse_json(octets: bytes) -> Any:
    """Parse a JSON text.

    Args:
        octets: The text in UTF-8.
    Raises:
        ValueError: It is not JSON, or it contains unpaired surrogates, NaN or infinite numbers.
    """
    text = octets.decode("utf-8")
    try:
        value = decoder.decode(text)
    except RecursionError:
        raise ValueError("nested too deep") from None
    # Unpaired surrogates can only come from escapes.
    if "\\ud" in text or "\\uD" in text:
        refuse_surrogates(value)
    return value


def refuse_surrogates(value: Any) -> None:
    """Refuse a value that contains an unpaired surrogate.

    Raises:
        ValueError: It contains one.
    """
    json.dumps(value, ensure_ascii=False).encode("utf-8")


def check_nesting(value: Any) -> None:
    """Refuse a value that is nested deeper, or contains more values, than a field table may.

    Args:
        value: A JSON value; an outermost object or list does not count.
    Raises:
        ValueError: It is nested too deep, or has too many values.
    """
    level: list[Any] = [value] if isinstance(value, Mapping | list) else []
    count = depth = 0
    while level:
        if depth > MAX_DEPTH:
            raise ValueError(f"nested too deep, {MAX_DEPTH} levels are allowed")
        count += sum(map(len, level))
        if count > VALUES_MAX:
            raise ValueError(f"too many values, {VALUES_MAX} are allowed")
        inner = [element for each in level for element in (each.values() if isinstance(each, Mapping) else each)]
        level = [each for each in inner if isinstance(each, Mapping | list)]
        depth += 1


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"{text} is too large")
    return number


#: A JSON decoder that refuses NaN and infinite numbers.
decoder: Final = json.JSONDecoder(parse_constant=_refuse, parse_float=_finite)
