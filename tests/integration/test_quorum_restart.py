"""Messages that came back to a quorum queue are where they were after a restart, with their delivery counts."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.leveret_process import LeveretProcess
from tests.support.tables import plain
from tests.support.wire import Connection


@pytest.mark.parametrize("crash", [False, True])
def test_returned_messages_stay_first(leveret_process: Callable[..., LeveretProcess], crash: bool) -> None:
    broker = leveret_process()
    with Connection(broker.url) as connection:
        channel = connection.channel()
        arguments = [("x-queue-type", "S", "quorum"), ("x-delivery-limit", "I", 5)]
        channel.queue_declare("q", durable=True, arguments=arguments)
        channel.confirm_select()
        for body in (b"1", b"2", b"3"):
            channel.publish("", "q", body)
        channel.wait_for_confirms(3)
        tags = [delivery.delivery_tag for delivery in (channel.get("q"), channel.get("q")) if delivery is not None]
        for tag in reversed(tags):
            channel.nack(tag)
        channel.sync("q")
        # What comes back is written in the turn in which it does; this confirm is behind that.
        other = connection.channel()
        other.confirm_select()
        other.publish("", "q", b"4")
        other.wait_for_confirms(1)
        if crash:
            broker.kill()
    broker.restart(crash=crash)
    with Connection(broker.url) as connection:
        channel = connection.channel()
        found = [delivery for delivery in (channel.get("q") for _ in range(4)) if delivery is not None]
        assert [(each.body, plain(each.headers)["x-delivery-count"]) for each in found] == [
            (b"2", 1),
            (b"1", 1),
            (b"3", 0),
            (b"4", 0),
        ]
