from __future__ import annotations

from typing import Any

import pytest

from leveret.policies.policy_keys import ARGUMENTS, KEYS, argument_error
from leveret.policies.value_checks import USER_LIMITS, VHOST_LIMITS, Values, integer, limits_error, one_of


@pytest.mark.parametrize(
    ("values", "good", "bad"),
    [
        (integer(1, 5), [1, 5], [0, 6, True, 1.0, "1", None]),
        (integer(0), [0, 1 << 70], [-1]),
        (one_of("a", "b"), ["a", "b"], ["c", "", 1, ["a"]]),
        (one_of(1, 2), [1, 2], [3, True, 1.0, "1"]),
        (Values("string"), ["", "x"], [1, None]),
        (Values("boolean"), [True, False], [0, "true"]),
        (Values("age"), ["7D", "10s"], ["", "D", "0D", "7", "7d", "-7D", 7]),
    ],
    ids=lambda each: each.type_name if isinstance(each, Values) else "",
)
def test_values(values: Values, good: list[Any], bad: list[Any]) -> None:
    assert [value for value in good if not values(value)] == []
    assert [value for value in bad if values(value)] == []


def test_every_row_has_a_summary() -> None:
    assert all(row.summary.endswith(".") for row in (*KEYS.values(), *ARGUMENTS.values()))


#: Types over AMQP of JSON types.
_AMQP = {"integer": "long", "string": "longstr", "boolean": "bool", "age": "longstr", "delays": "longstr"}


@pytest.mark.parametrize("name", [name for name, row in ARGUMENTS.items() if row.is_checked])
def test_what_forms_offer_is_what_declarations_take(name: str) -> None:
    values = ARGUMENTS[name].argument_values or ARGUMENTS[name].values

    def is_taken(value: Any) -> bool:
        sent = value.encode() if isinstance(value, str) else value
        return argument_error(name, {name: (_AMQP[values.type_name], sent)}) is None

    ends = [end for end in (values.least, values.most) if end is not None]
    assert all(is_taken(value) for value in [*ends, *values.choices])
    if values.least is not None:
        assert not is_taken(values.least - 1)
    if values.most is not None and values.refusal:
        assert not is_taken(values.most + 1)


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
    assert limits_error(limits, known, "limits") == expected
