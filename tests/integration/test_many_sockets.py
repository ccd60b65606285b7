"""More clients than there are file descriptors: some are refused, the others go on, and so does the store."""

from __future__ import annotations

import resource
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.support.leveret_process import LeveretProcess
from tests.support.transport import PROTOCOL_HEADER, parse_url
from tests.support.wire import Connection

#: File descriptors of the broker; half of them are for clients.
FILES = 120
LAZY = ("x-queue-mode", "S", "lazy")


@contextmanager
def greeted(url: str) -> Iterator[bool]:
    """Connect, and tell whether the broker answers."""
    address = parse_url(url)
    with socket.create_connection((address.host, address.port), 60) as client:
        try:
            client.sendall(PROTOCOL_HEADER)
            yield client.recv(1) != b""
        except ConnectionError:
            yield False


def test_the_store_goes_on_and_clients_may_come_again(tmp_path: Path) -> None:
    with LeveretProcess(tmp_path, settings={"storage.segment_size": 65_536}) as broker:
        resource.prlimit(broker.pid, resource.RLIMIT_NOFILE, (FILES, FILES))
        with Connection(broker.url, timeout=120) as connection:
            channel = connection.channel()
            channel.confirm_select()
            queues = [f"q{number}" for number in range(3)]
            with ExitStack() as others:
                refused = 0
                while not refused:
                    refused += not others.enter_context(greeted(broker.url))
                for queue in queues:
                    channel.queue_declare(queue, durable=True, arguments=[LAZY])
                    for number in range(200):
                        channel.publish("", queue, b"%d:" % number + bytes(1000), {"delivery_mode": 2})
                assert channel.wait_for_confirms(600) == [True] * 600
                for queue in queues:
                    channel.consume(queue)
                assert len(channel.deliveries(600)) == 600
            deadline = time.monotonic() + 60
            is_greeted = False
            while not is_greeted:
                assert time.monotonic() < deadline, "nobody may come any more"
                with greeted(broker.url) as is_greeted:
                    pass
        log = broker.log_text()
        assert log.count("refusing AMQP connections") <= 2
        assert "Too many open files" not in log
