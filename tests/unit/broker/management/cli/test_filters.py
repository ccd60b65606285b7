"""The conditions of `move_messages --filter`."""

from __future__ import annotations

from typing import Any

import pytest

from leveret.broker.management.cli.faults import DATA, UsageFault
from leveret.broker.management.cli.filters import read_conditions


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("routing_key=order.*", {"routing_key": "order.*"}),
        ("exchange=", {"exchange": ""}),
        ("queue=a=b", {"queue": "a=b"}),
        ("reason=maxlen\nexchange=x", {"reason": "maxlen", "exchange": "x"}),
        ("header.n=5", {"headers": {"n": 5}}),
        ("header.n=true\nheader.s=five", {"headers": {"n": True, "s": "five"}}),
        ('header.s="5"', {"headers": {"s": "5"}}),
        ('{"routing_key":"a","headers":{"n":1}}', {"routing_key": "a", "headers": {"n": 1}}),
        ('{"routing_key":"a"}\nreason=expired', {"routing_key": "a", "reason": "expired"}),
    ],
)
def test_read(text: str, expected: dict[str, Any]) -> None:
    assert read_conditions(text) == expected


@pytest.mark.parametrize("text", ["a", "colour=red", "header.=1", "=1", "{", '{"a"}', "reason"])
def test_refused(text: str) -> None:
    with pytest.raises(UsageFault, match="--filter") as caught:
        read_conditions(text)
    assert caught.value.status == DATA
