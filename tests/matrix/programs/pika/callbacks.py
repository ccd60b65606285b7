"""A program on one of pika's adapters with callbacks; prints what happened as JSON when its connection has closed.

Arguments: the adapter (`select`, `asyncio`, `tornado`, `gevent`), the URL, and what to do: `work`, or `idle` until the
broker closes the connection, consuming the queue that a fourth argument names.
"""

from __future__ import annotations

import importlib
import json
import sys
from typing import Any, Final

import pika
from pika import spec

MESSAGES: Final = 105
PREFETCH: Final = 7

_ADAPTERS: Final = {
    "select": "SelectConnection",
    "asyncio": "AsyncioConnection",
    "tornado": "TornadoConnection",
    "gevent": "GeventConnection",
}
_PATIENCE: Final = 60.0


class Session:
    """One connection and what happens on it."""

    def __init__(self, adapter: str, url: str) -> None:
        connect = getattr(importlib.import_module(f"pika.adapters.{adapter}_connection"), _ADAPTERS[adapter])
        self.seen: dict[str, Any] = {"confirmed": 0, "returned": [], "received": [], "most_unacked": 0}
        self.connection = connect(
            pika.URLParameters(url),
            on_open_callback=lambda connection: connection.channel(on_open_callback=self._opened),
            on_open_error_callback=self._ended,
            on_close_callback=self._ended,
        )
        self._loop = self.connection.ioloop

    def run(self) -> None:
        """Run until the connection has closed."""
        self._loop.call_later(_PATIENCE, self._stop)
        # An event loop of asyncio has another name for it.
        start = getattr(self._loop, "start", None) or self._loop.run_forever
        start()

    def _stop(self) -> None:
        self._loop.stop()

    def _ended(self, _: Any, error: Any) -> None:
        self.seen["closed"] = [getattr(error, "reply_code", None), str(error)]
        self._stop()

    def _opened(self, channel: Any) -> None:
        raise NotImplementedError


class Work(Session):
    """Publishes with confirms, gets a message back, consumes with a prefetch, and tidies up."""

    def _opened(self, channel: Any) -> None:
        self._channel, self._outstanding = channel, 0
        self._confirms: set[int] = set()
        channel.add_on_return_callback(lambda *arguments: self.seen["returned"].append(arguments[1].reply_code))
        channel.confirm_delivery(self._confirmed, callback=lambda _: self._declare())

    def _declare(self) -> None:
        self._channel.queue_declare("", exclusive=True, callback=self._publish)

    def _publish(self, declared: Any) -> None:
        self._queue = declared.method.queue
        for number in range(MESSAGES):
            self._channel.basic_publish("", self._queue, str(number), pika.BasicProperties(delivery_mode=2))
        self._channel.basic_publish("", "nobody", "lost", mandatory=True)

    def _confirmed(self, frame: Any) -> None:
        assert isinstance(frame.method, spec.Basic.Ack)
        tag = frame.method.delivery_tag
        self._confirms.update(range(1, tag + 1) if frame.method.multiple else [tag])
        self.seen["confirmed"] = len(self._confirms)
        if len(self._confirms) == MESSAGES + 1:
            self._channel.basic_qos(prefetch_count=PREFETCH, callback=lambda _: self._consume())

    def _consume(self) -> None:
        self._tag = self._channel.basic_consume(self._queue, self._received)

    def _received(self, _: Any, method: Any, properties: Any, body: bytes) -> None:
        self.seen["received"].append(int(body))
        self._outstanding += 1
        self.seen["most_unacked"] = max(self.seen["most_unacked"], self._outstanding)
        if self._outstanding == PREFETCH:
            # Later, so that too many would be seen.
            self._loop.call_later(0.02, lambda: self._ack(method.delivery_tag))

    def _ack(self, tag: int) -> None:
        self._outstanding = 0
        self._channel.basic_ack(tag, multiple=True)
        if len(self.seen["received"]) >= MESSAGES:
            self._channel.basic_cancel(self._tag, callback=lambda _: self._count())

    def _count(self) -> None:
        self._channel.queue_declare(self._queue, passive=True, callback=self._counted)

    def _counted(self, declared: Any) -> None:
        self.seen["left"] = declared.method.message_count
        self._channel.queue_delete(self._queue, callback=lambda _: self.connection.close())


class Idle(Session):
    """Consumes a queue until the broker closes the connection."""

    def _opened(self, channel: Any) -> None:
        channel.queue_declare(sys.argv[4], callback=lambda _: self._consume(channel))

    def _consume(self, channel: Any) -> None:
        channel.basic_consume(sys.argv[4], self._received, auto_ack=True)

    def _received(self, _: Any, method: Any, properties: Any, body: bytes) -> None:
        self.seen["received"].append(body.decode())


if __name__ == "__main__":
    session = (Work if sys.argv[3] == "work" else Idle)(*sys.argv[1:3])
    session.run()
    json.dump(session.seen, sys.stdout)
