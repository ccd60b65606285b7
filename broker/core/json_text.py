"""JSON as it comes from outside, refused where it could not be written again."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, NoReturn

from protocol.field_table import MAX_DEPTH


def parse_json(octets: bytes) -> Any:
    """The value in a JSON text.

    Args:
        octets: UTF-8.
    Raises:
        ValueError: It is no JSON, or has what UTF-8 and JSON cannot hold: half a character, numbers without end.
    """
    text = octets.decode("utf-8")
    try:
        value = json.loads(text, parse_constant=_refuse, parse_float=_finite)
    except RecursionError:
        raise ValueError("nested too deep") from None
    # Only an escape can stand for half a character.
    if "\\ud" in text or "\\uD" in text:
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    return value


def refuse_deep(value: Any) -> None:
    """Refuse a value with more objects and lists inside of each other than field tables may have.

    Args:
        value: What JSON can hold; if it is an object or list, that one does not count.
    Raises:
        ValueError: It is nested too deep.
    """
    level, depth = [value] if isinstance(value, Mapping | list) else [], 0
    while level:
        if depth > MAX_DEPTH:
            raise ValueError(f"nested too deep, {MAX_DEPTH} levels are allowed")
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
