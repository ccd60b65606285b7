"""What each policy key takes, in which texts it is refused, and how it meets other policies (rules 3.1 to 3.3)."""

from __future__ import annotations

from typing import Any, Final, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.policies.policy import fits, merge_operator, refuse_definition
from leveret.policies.policy_keys import KEYS, Operator
from leveret.policies.queue_settings import QueueSettings, effective_settings
from leveret.protocol.erlang_terms import format_json

QueueType = Literal["classic", "quorum"]

#: Values that no key takes, whatever it is for.
NEVER: Final[tuple[Any, ...]] = (None, True, False, [], {}, ["a"], {"a": 1}, 1.5)

#: Key, values that it takes, values that it refuses beside NEVER, the end of the error text.
ROWS: Final[tuple[tuple[str, tuple[Any, ...], tuple[Any, ...], str], ...]] = (
    ("alternate-exchange", ("", "x", "ä" * 200), (1, 0), "alternate exchange name"),
    ("max-delayed", (0, 1, 1 << 70), (-1, "10", 1.0), "maximum number of delayed messages"),
    ("x-cache-size", (1, 1 << 70), (0, -1, "10", 1.0), "must be an integer greater than 0"),
    ("x-cache-ttl", (1, 1 << 70), (0, -1, "10", 1.0), "must be an integer greater than 0"),
    ("x-cache-persistence", ("memory", "disk"), ("", "Disk", 1), 'must be either "disk" or "memory"'),
    ("x-message-deduplication", (True, False), ("true", 1, 0), "must be a boolean"),
    ("expires", (1, 1 << 70), (0, -1, "10", 1.0), "queue expiry"),
    ("dead-letter-exchange", ("", "x"), (1,), "dead letter exchange name"),
    ("dead-letter-routing-key", ("", "k"), (1,), "dead letter routing key"),
    ("dead-letter-strategy", ("at-most-once", "at-least-once"), ("", "never", 1), "dead letter strategy"),
    ("message-ttl", (0, 1, 1 << 70), (-1, "10", 1.0), "message TTL"),
    ("max-length", (0, 1, 1 << 62), (-1, "10", 1.0), "maximum length"),
    ("max-length-bytes", (0, 1 << 62), (-1, "10", 1.0), "maximum length in bytes"),
    ("max-in-memory-length", (0, 5), (-1, "10", 1.0), "maximum memory in bytes"),
    ("max-in-memory-bytes", (0, 5), (-1, "10", 1.0), "maximum memory in bytes"),
    (
        "overflow",
        ("drop-head", "reject-publish", "reject-publish-dlx"),
        ("", "bogus", "Drop-Head", 1),
        "overflow value",
    ),
    ("consumer-timeout", (1, 1 << 70), (0, -1, "10", 1.0), "consumer timeout"),
    ("length-counts", ("ready", "all"), ("", "All", 1), "length-counts value"),
    ("queue-mode", ("default", "lazy"), ("", "Lazy", 1), "queue-mode value"),
    ("queue-version", (1, 2), (0, 3, "1", 1.0, 2.0), "queue-version value"),
    ("delivery-limit", (0, 5), ("10", 1.0), "delivery limit"),
    ("redelivery-limit", (0, 5), (-1, "10", 1.0), "redelivery limit"),
    (
        "delayed-retry-type",
        ("disabled", "all", "failed", "returned"),
        ("", "All", 1),
        "delayed retry type. Must be one of: all, failed, returned, disabled",
    ),
    (
        "delayed-retry-min",
        (1, 1 << 70),
        (0, -1, "10", 1.0),
        "delayed retry minimum delay. Must be a positive integer",
    ),
    (
        "delayed-retry-max",
        (1, 1 << 70),
        (0, -1, "10", 1.0),
        "delayed retry maximum delay. Must be a positive integer",
    ),
    (
        "delayed-retry-steps",
        ("1s", "1s,10s,1m", "500ms, 2h,1d"),
        ("", "1", "s", "0s", "-1s", "1.5s", "1s,", "1w", "²s", 1, ",".join(["1s"] * 101)),
        "list of delayed retry steps. Must be delays such as 1s,10s,1m",
    ),
    ("max-age", ("1Y", "12M", "3D", "4h", "5m", "60s"), ("", "s", "0s", "-1s", "1", "1w", "1.5h", "²D", 60), "max age"),
    ("stream-max-segment-size-bytes", (0, 3_000_000_000), (3_000_000_001, -1, "1"), "segment size"),
    (
        "queue-leader-locator",
        ("client-local", "balanced", "random", "least-leaders"),
        ("", "x", 1),
        "queue leader locator value",
    ),
    ("initial-cluster-size", (1, 7), (0, -1, "1"), "cluster size"),
)
BY_NAME: Final = {row[0]: row for row in ROWS}

#: Rule 3.3.4, with those that later releases allow, and our own.
OPERATOR: Final = {
    "expires", "message-ttl", "max-length", "max-length-bytes", "max-in-memory-length", "max-in-memory-bytes",
    "delivery-limit", "overflow", "queue-version", "length-counts", "consumer-timeout",
    "redelivery-limit", "delayed-retry-type", "delayed-retry-min", "delayed-retry-max", "delayed-retry-steps",
}  # fmt: skip

#: Rules 3.2.7 and 3.2.8.
UNFIT: Final = {
    "classic": {
        "max-age", "stream-max-segment-size-bytes", "queue-leader-locator", "initial-cluster-size", "delivery-limit",
        "dead-letter-strategy",
    },
    "quorum": {"queue-mode", "max-age", "stream-max-segment-size-bytes", "initial-cluster-size"},
    "stream": {
        "expires", "message-ttl", "dead-letter-exchange", "dead-letter-routing-key", "dead-letter-strategy",
        "max-length", "max-in-memory-length", "max-in-memory-bytes", "overflow", "queue-mode", "delivery-limit",
        "length-counts", "consumer-timeout", "redelivery-limit",
        "delayed-retry-type", "delayed-retry-min", "delayed-retry-max", "delayed-retry-steps",
    },
}  # fmt: skip


def test_there_is_a_row_for_every_key() -> None:
    assert BY_NAME.keys() == KEYS.keys()


@pytest.mark.parametrize(("name", "good", "bad", "said"), ROWS, ids=BY_NAME)
def test_values(name: str, good: tuple[Any, ...], bad: tuple[Any, ...], said: str) -> None:
    beside = {"delayed-retry-min": 1} if name == "delayed-retry-type" else {}
    for value in good:
        assert refuse_definition({name: value, **beside}, operator=False) is None
    for value in (*bad, *NEVER):
        if not (isinstance(value, bool) and isinstance(good[0], bool)):
            text = f"{format_json(value)} is not a valid {said}"
            if said.startswith("must"):
                text = f'"{name}" {said}, got {format_json(value)}'
            assert refuse_definition({name: value}, operator=False) == text


@pytest.mark.parametrize(
    ("definition", "text"),
    [
        ({"delayed-retry-type": "all"}, "delayed-retry-min is required when delayed-retry-type is all"),
        ({"delayed-retry-type": "all", "delayed-retry-steps": "1s,10s"}, None),
        (
            {"delayed-retry-min": 10, "delayed-retry-max": 5},
            "delayed-retry-max (5) must not be smaller than delayed-retry-min (10)",
        ),
    ],
)
def test_keys_that_depend_on_each_other(definition: dict[str, Any], text: str | None) -> None:
    assert refuse_definition(definition, operator=False) == text


def test_operator_policies_hold_fewer_keys() -> None:
    for name, good, _, _ in ROWS:
        refused = f'[{{<<"{name}">>,{format_json(good[0])}}}] are not recognised policy settings'
        found = refuse_definition({name: good[0]}, operator=True)
        assert found == (None if name in OPERATOR else refused)


@pytest.mark.parametrize("queue_type", UNFIT)
def test_one_unfit_key_passes_a_policy_over(queue_type: str) -> None:
    for beside in ({}, {"max-length-bytes": 1}):
        unfit = {row[0] for row in ROWS if not fits({row[0]: row[1][0], **beside}, queue_type)}
        assert unfit == UNFIT[queue_type]


@pytest.mark.parametrize(("queue_type", "fitting"), [("classic", True), ("quorum", False), ("stream", False)])
def test_only_classic_queues_are_mirrored(queue_type: str, fitting: bool) -> None:
    assert fits({"ha-mode": "all", "max-length-bytes": 5}, queue_type) is fitting


class TestMergingWithAnOperatorPolicy:
    @pytest.mark.parametrize(
        "name",
        sorted(name for name in OPERATOR if KEYS[name].operator is Operator.MIN),
    )
    def test_the_smaller_number_counts(self, name: str) -> None:
        assert merge_operator({name: 20}, {name: 3}) == {name: 3}
        assert merge_operator({name: 3}, {name: 20}) == {name: 3}

    def test_delayed_retries(self) -> None:
        user = {"delayed-retry-type": "all", "delayed-retry-min": 10, "delayed-retry-max": 100}
        operator = {"delayed-retry-type": "failed", "delayed-retry-min": 5, "delayed-retry-max": 50}
        expected = {"delayed-retry-type": "failed", "delayed-retry-min": 10, "delayed-retry-max": 50}
        assert merge_operator(user, operator) == expected
        assert merge_operator(operator, user) == expected | {"delayed-retry-type": "all"}


def settings(queue_type: QueueType, policy: dict[str, Any] | None = None, **arguments: Any) -> QueueSettings:
    """Effective settings; arguments without their x- and with _ for -."""
    named = {f"x-{name.replace('_', '-')}": value for name, value in arguments.items()}
    return effective_settings(queue_type, named, policy or {})


def test_nothing_set() -> None:
    assert settings("classic") == settings("quorum") == QueueSettings()
    assert (QueueSettings().overflow, QueueSettings().max_length) == ("drop-head", None)


def test_what_means_nothing_is_passed_over() -> None:
    assert settings("classic", {"delivery-limit": 3, "dead-letter-strategy": "at-least-once"}) == QueueSettings()
    assert settings("quorum", {"queue-mode": "lazy"}) == QueueSettings()
    assert settings("classic", {}, foo=1, max_priority=3, single_active_consumer=True) == QueueSettings()
    assert settings("classic", {"x-max-length": 3}) == QueueSettings()


def test_no_delivery_limit_is_more_than_one() -> None:
    """As in RabbitMQ 4.0; an operator's limit holds."""
    assert settings("quorum", {"delivery-limit": 3}, delivery_limit=-1).delivery_limit == 3
    assert settings("quorum", {}, delivery_limit=-1).delivery_limit == -1


NUMBERS: Final = ("max-length", "max-length-bytes", "message-ttl", "expires")
definitions = st.dictionaries(st.sampled_from(NUMBERS), st.integers(1, 50))


@given(definitions, definitions, definitions)
def test_a_classic_queue_is_bound_by_the_least_of_all_three(
    arguments: dict[str, int], user: dict[str, int], operator: dict[str, int]
) -> None:
    before = (dict(user), dict(operator))
    named = {f"x-{name}": value for name, value in arguments.items()}
    found = effective_settings("classic", named, merge_operator(user, operator))
    for name in NUMBERS:
        given_values = [each[name] for each in (arguments, user, operator) if name in each]
        assert getattr(found, name.replace("-", "_")) == min(given_values, default=None)
    assert (user, operator) == before, "neither is changed"
