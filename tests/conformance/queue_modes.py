"""Fixtures for queues in lazy and default mode, set by argument or by policy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.conformance.fixtures import SetPolicy, Unique
from tests.conformance.topology import new_queue
from tests.support.tables import Triple
from tests.support.wire import Channel

LAZY: Triple = ("x-queue-mode", "S", "lazy")
DEFAULT: Triple = ("x-queue-mode", "S", "default")

#: Declares a queue with a new name; parameters are further arguments, and options of `Channel.queue_declare`.
NewQueue = Callable[..., str]


@pytest.fixture(params=["default", "lazy", "lazy by policy", "no longer lazy"])
def mode(request: pytest.FixtureRequest) -> str:
    """The mode of the queues, and how it is set."""
    found: str = request.param
    return found


@pytest.fixture(params=[False, True], ids=["transient", "durable"])
def durable(request: pytest.FixtureRequest) -> bool:
    """Whether the queues are durable, and their messages persistent."""
    found: bool = request.param
    return found


@pytest.fixture
def persistence(durable: bool) -> dict[str, Any]:
    """The delivery mode of messages."""
    return {"delivery_mode": 2 if durable else 1}


@pytest.fixture
def queue_in_mode(channel: Channel, unique: Unique, policy: SetPolicy, mode: str, durable: bool) -> NewQueue:
    """A function that declares a queue in the mode."""

    def declare(*arguments: Triple, **options: Any) -> str:
        given = [*arguments, *([LAZY] if mode == "lazy" else [])]
        queue = new_queue(channel, unique, arguments=given, **{"durable": durable, **options})
        if "by policy" in mode or "no longer" in mode:
            policy(queue, {"queue-mode": "lazy"})
        if "no longer" in mode:
            policy(queue, {"queue-mode": "default"})
        return queue

    return declare
