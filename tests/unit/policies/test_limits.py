from __future__ import annotations

from typing import Any

import pytest

from leveret.policies.limits import USER_LIMITS, VHOST_LIMITS, refuse_limits


@pytest.mark.parametrize(
    ("limits", "known", "expected"),
    [
        ({}, VHOST_LIMITS, None),
        ({"max-connections": 0, "max-queues": -1}, VHOST_LIMITS, None),
        ({"max-channels": 5}, USER_LIMITS, None),
        ({"max-channels": 5}, VHOST_LIMITS, 'Unrecognised terms [{<<"max-channels">>,5}] in limits'),
        ({"a": 1, "b": "x"}, VHOST_LIMITS, 'Unrecognised terms [{<<"a">>,1},{<<"b">>,<<"x">>}] in limits'),
        ({"max-queues": "5"}, VHOST_LIMITS, 'max-queues should be a number, actually was <<"5">>'),
        ({"max-queues": 7.5}, VHOST_LIMITS, "max-queues should be a number, actually was 7.5"),
        ({"max-queues": True}, VHOST_LIMITS, "max-queues should be a number, actually was true"),
    ],
)
def test_which_limits_are_refused(limits: dict[str, Any], known: tuple[str, ...], expected: str | None) -> None:
    assert refuse_limits(limits, known, "limits") == expected
