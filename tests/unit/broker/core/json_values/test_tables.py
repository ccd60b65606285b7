from __future__ import annotations

from typing import Any

import pytest

from leveret.broker.core.json_values.tables import check_nesting, table_from_json, table_to_json
from leveret.protocol.field_table import FieldValue, longstr


def nested(depth: int, in_lists: bool) -> dict[str, Any]:
    """Arguments with this many levels of nested objects or lists."""
    value: Any = 1
    for _ in range(depth):
        value = [value] if in_lists else {"k": value}
    return {"k": value}


@pytest.mark.parametrize("in_lists", [True, False])
def test_128_levels_are_allowed(in_lists: bool) -> None:
    arguments = nested(128, in_lists)
    assert table_to_json(table_from_json(arguments)) == arguments
    with pytest.raises(ValueError, match="nested too deep, 128 levels are allowed"):
        table_from_json(nested(129, in_lists))


def test_json_gets_the_types_that_rabbitmq_gives_it() -> None:
    arguments = {"b": True, "i": 1, "f": 1.5, "s": "ä", "o": {"i": 2}, "a": [1, "x", None], "n": None}
    assert table_from_json(arguments) == (
        ("b", FieldValue("t", True)),
        ("i", FieldValue("l", 1)),
        ("f", FieldValue("d", 1.5)),
        ("s", longstr("ä")),
        ("o", FieldValue("F", (("i", FieldValue("l", 2)),))),
        ("a", FieldValue("A", (FieldValue("l", 1), longstr("x"), FieldValue("V", None)))),
        ("n", FieldValue("V", None)),
    )


def test_a_level_is_one_whatever_is_in_it() -> None:
    check_nesting([[], {}, {"a": [{}, 1, None, "x"] * 100}] * 100)
    check_nesting("x")


def test_a_table_is_shown_without_a_deep_stack() -> None:
    value = FieldValue("I", 1)
    for _ in range(3_000):
        value = FieldValue("A", (FieldValue("F", (("k", value),)),))
    shown = table_to_json((("k", value),))["k"]
    for _ in range(3_000):
        shown = shown[0]["k"]
    assert shown == 1
