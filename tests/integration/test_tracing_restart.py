"""Tracing that is on outlives the broker's end."""

from __future__ import annotations

import time
from pathlib import Path

from tests.support.leveret_process import LeveretProcess
from tests.support.management import Management
from tests.support.wire import Connection


def test_tracing_goes_on_after_a_restart(tmp_path: Path) -> None:
    with LeveretProcess(tmp_path) as broker:
        with Connection(broker.url) as connection:
            channel = connection.channel()
            channel.queue_declare("trace", durable=True)
            channel.queue_bind("trace", "amq.rabbitmq.trace", "#")
        management = Management(broker.http_url)
        management.request("PUT", "vhosts", "/", body={"tracing": True})
        broker.stop()
        broker.start()
        with Connection(broker.url) as connection:
            channel = connection.channel()
            channel.publish("amq.fanout", "", b"seen")
            deadline = time.monotonic() + 120
            while (copy := channel.get("trace", no_ack=True)) is None:
                assert time.monotonic() < deadline
        assert (copy.routing_key, copy.body) == ("publish.amq.fanout", b"seen")
