"""Conditions on bodies are checked in short steps, whatever the body is. test_message_filter.py says what they mean."""

from __future__ import annotations

import re
from typing import Any

import pytest

from leveret.broker.core.queues.message_selector import (
    BODY_MAX,
    TOO_DEEP,
    TOO_LONG,
    TOO_MUCH,
    BodyConditions,
    UnreadableBody,
)
from tests.support.steps import result_of


def test_no_step_decodes_or_compares_all_of_a_long_body() -> None:
    body = b"[" + b"0," * 199_999 + b"0]"
    passed, few = result_of(BodyConditions({"[1]": 1}, is_any=True).steps(body))
    assert (passed, few > 80) == (False, True)
    passed, many = result_of(BodyConditions({"[*]": 1, "[*].x": 1}, is_any=True).steps(body))
    assert (passed, many >= few + 2 * 200_000 // 256) == (False, True)


@pytest.mark.parametrize(
    ("paths", "body", "problem"),
    [
        ({"[0]": 1}, b"[" + b" " * BODY_MAX + b"1]", TOO_LONG),
        ({f"[*][{at}]": 1 for at in range(60)}, b"[" + b"0," * 20_000 + b"0]", TOO_MUCH),
        ({"[0]": 1}, b"[" * 1000 + b"]" * 1000, TOO_DEEP),
        ({"[0]": 1}, b"[" * 100_000 + b"]" * 100_000, TOO_DEEP),
    ],
    ids=["long", "much", "deep", "long and deep"],
)
def test_a_body_that_cannot_be_checked(paths: dict[str, Any], body: bytes, problem: str) -> None:
    with pytest.raises(UnreadableBody, match=re.escape(problem)):
        result_of(BodyConditions(paths, is_any=True).steps(body))


def test_values_as_deep_as_can_be_are_compared() -> None:
    """To compare values takes as deep a stack as to decode them."""
    body = b"[" * 400 + b"]" * 400
    deep: list[Any] = []
    for _ in range(399):
        deep = [deep]
    assert result_of(BodyConditions({"": deep}, is_any=True).steps(body))[0]
