"""Messages that a broker has confirmed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tests.support.tables import Triple
from tests.support.wire import Connection


def publish_confirmed(url: str, queue: str, bodies: Iterable[bytes], arguments: Sequence[Triple] = ()) -> None:
    """Declare a durable queue, publish persistent messages to it, and wait until all are confirmed."""
    with Connection(url, timeout=60) as connection:
        channel = connection.channel()
        channel.queue_declare(queue, durable=True, arguments=arguments)
        channel.confirm_select()
        bodies = [*bodies]
        for body in bodies:
            channel.publish("", queue, body, {"delivery_mode": 2})
        assert all(channel.wait_for_confirms(len(bodies)))


def publish_numbers(url: str, queue: str, numbers: Iterable[int], arguments: Sequence[Triple] = ()) -> None:
    """Do the same with numbers as bodies."""
    publish_confirmed(url, queue, (b"%d" % number for number in numbers), arguments)
