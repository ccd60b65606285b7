"""JSON as it comes from outside, refused where it could not be written again."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, Final, NoReturn

from leveret.protocol.field_table import MAX_DEPTH

#: Values of a table that comes as JSON. Over AMQP one has room for fewer: a frame has 131,072 bytes.
VALUES_MAX: Final = 65_536


def parse_json(octets: bytes) -> Any:
    """The value in a JSON text.

    Args:
        octets: UTF-8.
    Raises:
        ValueError: It is no JSON, or has what UTF-8 and JSON cannot hold: half a character, numbers without end.
    """
    text = octets.decode("utf-8")
    try:
        value = decoder.decode(text)
    except RecursionError:
        raise ValueError("nested too deep") from None
    # Only an escape can stand for half a character.
    if "\\ud" in text or "\\uD" in text:
        refuse_halves(value)
    return value


def refuse_halves(value: Any) -> None:
    """Refuse a value with half a character in it.

    Raises:
        ValueError: It has.
    """
    json.dumps(value, ensure_ascii=False).encode("utf-8")


def refuse_deep(value: Any) -> None:
    """Refuse a value with more values, or more objects and lists inside of each other, than field tables may have.

    Args:
        value: What JSON can hold; if it is an object or list, that one does not count.
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
    raise ValueError(f"{constant} is no JSON")


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"{text} is too large")
    return number


#: Reads JSON, with what is refused.
decoder: Final = json.JSONDecoder(parse_constant=_refuse, parse_float=_finite)
