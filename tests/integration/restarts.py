"""A broker that is stopped or killed in the middle of a test and continues with its stored data."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from tests.conformance.bounded import refill
from tests.support.leveret_process import LeveretProcess
from tests.support.management import Management
from tests.support.tables import Triple
from tests.support.wire import Channel, Connection

PERSISTENT = {"delivery_mode": 2}
TRANSIENT = {"delivery_mode": 1}


class Restarts:
    """A broker, and the connections of one test."""

    def __init__(self, process: LeveretProcess, killed: bool) -> None:
        self.process = process
        self.killed = killed
        #: How much longer than a kill on a quiet machine the end takes.
        self.slowness = 1
        self._connections: list[Connection] = []

    def connect(self, vhost: str = "/") -> Connection:
        """A new connection."""
        self._connections.append(Connection(self.process.url, vhost=vhost, timeout=120))
        return self._connections[-1]

    def channel(self) -> Channel:
        """A channel of a new connection."""
        return self.connect().channel()

    def end(self) -> None:
        """Stop the broker, or kill it once what has moved from queue to queue is only where it is now."""
        if self.killed:
            self.wait_for_moves()
            self.process.kill()
        else:
            assert self.process.stop() == 0
        self.disconnect()

    def wait_for_moves(self) -> None:
        """Dead letters and returned messages are in two places until they are on the disk; so is a later message."""
        channel = self.channel()
        channel.queue_declare("restarts-marker", durable=True, arguments=[("x-max-length", "I", 1)])
        for _ in range(2):
            # What moves leaves its first place after a sync.
            refill(channel, "restarts-marker", b"", **PERSISTENT)

    def disconnect(self) -> None:
        """Drop all connections."""
        for connection in self._connections:
            connection.abort()
        self._connections.clear()

    def begin(self) -> Channel:
        """Start the broker again; return a channel to it."""
        self.process.start()
        return self.channel()

    def __call__(self, *, at: float = 0.0) -> Channel:
        """Stop or kill the broker and start it again; return a channel to it."""
        self.end()
        time.sleep(max(0.0, at - time.monotonic()))
        return self.begin()

    @staticmethod
    def new(hint: str = "q") -> str:
        """A name that nothing has yet."""
        return f"{hint}.{uuid.uuid4().hex[:12]}"

    def queue(self, channel: Channel, *arguments: Triple, hint: str = "q", **options: Any) -> str:
        """Declare a durable queue of a new name; return the name."""
        name = self.new(hint)
        channel.queue_declare(name, arguments=list(arguments), **{"durable": True, **options})
        return name

    @property
    def management(self) -> Management:
        """The HTTP API."""
        return Management(self.process.http_url)

    def policy(self, queue: str, definition: dict[str, Any], kind: str = "policies") -> None:
        """Give a queue a policy of its own."""
        body = {"pattern": f"^{queue}$", "definition": definition, "apply-to": "queues"}
        self.management.request("PUT", kind, "/", queue, body=body)


@pytest.fixture(params=[False, True], ids=["stopped", "killed"])
def restart(process: LeveretProcess, request: pytest.FixtureRequest) -> Iterator[Restarts]:
    """The broker of the module, to be stopped and to be killed."""
    restarts = Restarts(process, request.param)
    yield restarts
    restarts.disconnect()
