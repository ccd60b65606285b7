"""Rules 3.2.8 and 3.3.3: policies on quorum queues."""

from __future__ import annotations

import pytest

from tests.conformance.bounded import outcomes, quorum
from tests.conformance.deaths import arrival
from tests.conformance.fixtures import Poll, Unique
from tests.conformance.operator_policies import PolicySet, only
from tests.conformance.topology import drain, got, new_queue, numbered
from tests.support.wire import Channel


def left(channel: Channel, queue: str, published: int = 6) -> int:
    """Publish messages and wait for each; return how many stay, and empty the queue."""
    for body in numbered(published):
        outcomes(channel, queue, body)
    return len(drain(channel, queue))


@pytest.mark.parametrize(
    "unfit", [{"queue-mode": "lazy"}, {"max-age": "1h"}, {"stream-max-segment-size-bytes": 100}], ids=str
)
def test_3_2_8_a_policy_with_a_key_of_another_type_is_skipped(
    channel: Channel, unique: Unique, policies: PolicySet, unfit: dict[str, object]
) -> None:
    queue = quorum(channel, unique)
    policies.set(only(queue), {"max-length": 1, **unfit}, priority=9)
    policies.set(only(queue), {"max-length": 4})
    assert left(channel, queue) == 4


def test_3_2_8_a_key_of_quorum_queues_fits(channel: Channel, unique: Unique, policies: PolicySet) -> None:
    queue = quorum(channel, unique)
    policies.set(only(queue), {"max-length": 2, "delivery-limit": 3}, priority=9)
    policies.set(only(queue), {"max-length": 4})
    assert left(channel, queue) == 2


@pytest.mark.parametrize(("argument", "policy"), [(2, 4), (4, 2)])
def test_3_3_3_the_smaller_limit(
    channel: Channel, unique: Unique, policies: PolicySet, argument: int, policy: int
) -> None:
    queue = quorum(channel, unique, argument)
    policies.set(only(queue), {"max-length": policy})
    assert left(channel, queue) == 2


def test_3_3_3_the_overflow_of_the_policy(channel: Channel, unique: Unique, policies: PolicySet, poll: Poll) -> None:
    queue = quorum(channel, unique, 2, None, "drop-head")
    policies.set(only(queue), {"overflow": "reject-publish"})
    # RabbitMQ's channels learn of a full quorum queue a little later.
    poll(lambda: outcomes(channel, queue, b"x") == [False])


def test_3_3_3_the_smaller_delivery_limit(channel: Channel, unique: Unique, policies: PolicySet) -> None:
    letters = new_queue(channel, unique)
    queue = quorum(
        channel,
        unique,
        arguments=[
            ("x-delivery-limit", "I", 3),
            ("x-dead-letter-exchange", "S", ""),
            ("x-dead-letter-routing-key", "S", letters),
        ],
    )
    policies.set(only(queue), {"delivery-limit": 1})
    outcomes(channel, queue, b"one")
    for _ in range(2):
        channel.nack(got(channel, queue).delivery_tag, requeue=True)
        channel.sync(queue)
    assert arrival(channel, letters).body == b"one"
