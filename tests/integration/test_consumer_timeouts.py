"""A consumer with a timeout of its own, over a socket; tests/unit/broker/session/test_ack_timeout.py has the rules."""

from __future__ import annotations

from typing import Any

import pika
import pytest

from tests.conformance.http_api import Belongings, HttpApi, path
from tests.support.leveret_process import LeveretProcess


@pytest.fixture
def place(belongings: Belongings) -> str:
    """A virtual host of the test's own."""
    return belongings.vhost()


def test_pika_learns_of_it_and_goes_on(process: LeveretProcess, api: HttpApi, place: str) -> None:
    connection = pika.BlockingConnection(pika.URLParameters(f"{process.url}/{place}"))
    channel = connection.channel()
    channel.queue_declare("q", durable=True)
    channel.basic_publish("", "q", b"stuck")
    cancelled: list[str] = []
    channel.add_on_cancel_callback(lambda frame: cancelled.append(frame.method.consumer_tag))
    got: list[tuple[bytes, int]] = []

    def note(channel: Any, method: Any, properties: Any, body: bytes) -> None:
        got.append((body, method.delivery_tag))

    channel.basic_consume("q", note, consumer_tag="c", arguments={"x-consumer-timeout": 2000})
    (listed,) = api.get(path("consumers", place))
    assert listed["consumer_timeout"] == 2000
    while not cancelled:
        connection.process_data_events(time_limit=60)
    assert (cancelled, got) == (["c"], [(b"stuck", 1)])
    channel.basic_ack(1)
    method, _, body = channel.basic_get("q", auto_ack=True)
    assert (body, method.redelivered) == (b"stuck", True)
    connection.close()


def test_a_policy_gives_all_consumers_one(process: LeveretProcess, api: HttpApi, place: str) -> None:
    policy = {"pattern": "", "definition": {"consumer-timeout": 90_000}}
    api.check("PUT", path("policies", place, "p"), policy, 201)
    connection = pika.BlockingConnection(pika.URLParameters(f"{process.url}/{place}"))
    channel = connection.channel()
    channel.queue_declare("q")
    for tag, arguments in (("own", {"x-consumer-timeout": 5000}), ("common", {})):
        channel.basic_consume("q", lambda *_: None, consumer_tag=tag, arguments=arguments)
    listed = {each["consumer_tag"]: each["consumer_timeout"] for each in api.get(path("consumers", place))}
    assert listed == {"own": 5000, "common": 90_000}
    assert api.get(path("queues", place, "q", "explain"))["in_force"] == {"consumer-timeout": 90_000}
    connection.close()
