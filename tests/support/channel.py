"""A channel of the test client: sorts received methods into replies, deliveries, returns and confirms."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

from pamqp import commands

from tests.support import content, methods
from tests.support.events import ChannelClosed, Confirm, Delivery, Returned
from tests.support.methods import Method, MethodType
from tests.support.tables import Triple
from tests.support.transport import BODY, HEADER, METHOD, Frame, frame

Arguments = list[Triple] | bytes
Name = str | bytes


class ChannelMethods:
    """Requests made with `rpc` and `send`; with `nowait=True` they return None immediately."""

    def send(self, kind: MethodType, **arguments: Any) -> None:
        """Send a method on this channel without waiting."""
        raise NotImplementedError

    def rpc(self, kind: MethodType, *replies: MethodType, **arguments: Any) -> Method:
        """Send a method and wait for one of `replies`, by default the reply that pamqp lists."""
        raise NotImplementedError

    def _request(self, kind: MethodType, arguments: dict[str, Any]) -> Any:
        if arguments.get("nowait"):
            return self.send(kind, **arguments)
        return self.rpc(kind, **arguments)

    def exchange_declare(self, exchange: Name, type: Name = "direct", **arguments: Any) -> Any:
        """exchange.declare; keywords passive, durable, auto_delete, internal, nowait, arguments."""
        given = {"exchange": exchange, "exchange_type": type}
        return self._request(commands.Exchange.Declare, {**given, **arguments})

    def exchange_delete(self, exchange: Name, **arguments: Any) -> Any:
        """exchange.delete; keywords if_unused, nowait."""
        return self._request(commands.Exchange.Delete, {"exchange": exchange, **arguments})

    def exchange_bind(self, destination: Name, source: Name, routing_key: Name = "", **arguments: Any) -> Any:
        """exchange.bind; keywords nowait, arguments."""
        given = {"destination": destination, "source": source, "routing_key": routing_key}
        return self._request(commands.Exchange.Bind, {**given, **arguments})

    def exchange_unbind(self, destination: Name, source: Name, routing_key: Name = "", **arguments: Any) -> Any:
        """exchange.unbind; keywords nowait, arguments."""
        given = {"destination": destination, "source": source, "routing_key": routing_key}
        return self._request(commands.Exchange.Unbind, {**given, **arguments})

    def queue_declare(self, queue: Name = "", **arguments: Any) -> Any:
        """queue.declare; keywords passive, durable, exclusive, auto_delete, nowait, arguments."""
        return self._request(commands.Queue.Declare, {"queue": queue, **arguments})

    def queue_bind(self, queue: Name, exchange: Name, routing_key: Name = "", **arguments: Any) -> Any:
        """queue.bind; keywords nowait, arguments."""
        given = {"queue": queue, "exchange": exchange, "routing_key": routing_key}
        return self._request(commands.Queue.Bind, {**given, **arguments})

    def queue_unbind(self, queue: Name, exchange: Name, routing_key: Name = "", **arguments: Any) -> Method:
        """queue.unbind; keyword arguments (the method has no nowait)."""
        given = {"queue": queue, "exchange": exchange, "routing_key": routing_key}
        return self.rpc(commands.Queue.Unbind, **given, **arguments)

    def queue_purge(self, queue: Name, **arguments: Any) -> Any:
        """queue.purge; keyword nowait."""
        return self._request(commands.Queue.Purge, {"queue": queue, **arguments})

    def queue_delete(self, queue: Name, **arguments: Any) -> Any:
        """queue.delete; keywords if_unused, if_empty, nowait."""
        return self._request(commands.Queue.Delete, {"queue": queue, **arguments})

    def consume(self, queue: Name, consumer_tag: Name = "", **arguments: Any) -> Any:
        """basic.consume; keywords no_local, no_ack, exclusive, nowait, arguments. Returns consume-ok."""
        given = {"queue": queue, "consumer_tag": consumer_tag}
        return self._request(commands.Basic.Consume, {**given, **arguments})

    def cancel(self, consumer_tag: Name, **arguments: Any) -> Any:
        """basic.cancel; keyword nowait."""
        return self._request(commands.Basic.Cancel, {"consumer_tag": consumer_tag, **arguments})

    def qos(self, prefetch_count: int = 0, *, prefetch_size: int = 0, global_: bool = False) -> Method:
        """basic.qos."""
        return self.rpc(commands.Basic.Qos, prefetch_count=prefetch_count, prefetch_size=prefetch_size, global_=global_)

    def ack(self, delivery_tag: int = 0, *, multiple: bool = False) -> None:
        """basic.ack."""
        self.send(commands.Basic.Ack, delivery_tag=delivery_tag, multiple=multiple)

    def nack(self, delivery_tag: int = 0, *, multiple: bool = False, requeue: bool = True) -> None:
        """basic.nack."""
        self.send(commands.Basic.Nack, delivery_tag=delivery_tag, multiple=multiple, requeue=requeue)

    def reject(self, delivery_tag: int, *, requeue: bool = True) -> None:
        """basic.reject."""
        self.send(commands.Basic.Reject, delivery_tag=delivery_tag, requeue=requeue)

    def recover(self, *, requeue: bool = True) -> Method:
        """basic.recover."""
        return self.rpc(commands.Basic.Recover, requeue=requeue)

    def confirm_select(self, *, nowait: bool = False) -> Any:
        """confirm.select."""
        return self._request(commands.Confirm.Select, {"nowait": nowait})

    def tx_select(self) -> Method:
        """tx.select."""
        return self.rpc(commands.Tx.Select)

    def tx_commit(self) -> Method:
        """tx.commit."""
        return self.rpc(commands.Tx.Commit)

    def tx_rollback(self) -> Method:
        """tx.rollback."""
        return self.rpc(commands.Tx.Rollback)

    def flow(self, active: bool) -> Method:
        """channel.flow."""
        return self.rpc(commands.Channel.Flow, active=active)


if TYPE_CHECKING:
    from tests.support.wire import Connection

_CONTENT = (commands.Basic.Deliver, commands.Basic.GetOk, commands.Basic.Return)


class Channel(ChannelMethods):
    """An open channel. The broker's channel.close is answered with close-ok and raised by the waiting call."""

    def __init__(self, connection: Connection, number: int) -> None:
        self.connection = connection
        self.number = number
        self.replies: deque[Method] = deque()
        self.returns: deque[Returned] = deque()
        self.confirms: deque[Confirm] = deque()
        self.cancelled: deque[str] = deque()
        self.pending: deque[Delivery] = deque()
        self.closed: ChannelClosed | None = None
        self.answer_close = True
        self._got: list[Delivery] = []
        self._method: Method | None = None
        self._header = b""
        self._body = bytearray()

    # Receiving

    def handle(self, received: Frame) -> None:
        """Handle a frame of this channel, in order."""
        if received.type == METHOD:
            assert self._method is None, f"method inside the content of {self._method}"
            self._handle_method(methods.parse(received.payload))
            return
        assert self._method is not None, f"{received} without a content method"
        if received.type == HEADER:
            assert not self._header, "second content header"
            self._header = received.payload
        else:
            assert (received.type, bool(self._header), bool(received.payload)) == (BODY, True, True)
            self._body += received.payload
        size = int.from_bytes(self._header[4:12], "big")
        assert len(self._body) <= size
        if len(self._body) == size:
            self._handle_content(self._method, self._header, bytes(self._body))
            self._method, self._header, self._body = None, b"", bytearray()

    def _handle_method(self, method: Method) -> None:
        if method.kind in _CONTENT:
            self._method = method
        elif method.kind is commands.Channel.Close:
            self.closed = ChannelClosed.of(method)
            if self.answer_close:
                self.send(commands.Channel.CloseOk)
        elif method.kind in (commands.Basic.Ack, commands.Basic.Nack):
            ack = method.kind is commands.Basic.Ack
            self.confirms.append(Confirm(ack, method.delivery_tag, method.multiple))
        elif method.kind is commands.Basic.Cancel:
            self.cancelled.append(method.consumer_tag)
        else:
            self.replies.append(method)

    def _handle_content(self, method: Method, header: bytes, body: bytes) -> None:
        if method.kind is commands.Basic.Return:
            self.returns.append(Returned(header, body, **self._route(method), **_reply(method)))
            return
        delivery = Delivery(
            header,
            body,
            **self._route(method),
            delivery_tag=method.delivery_tag,
            redelivered=method.redelivered,
            consumer_tag=method.arguments.get("consumer_tag"),
            message_count=method.arguments.get("message_count"),
        )
        if method.kind is commands.Basic.GetOk:
            self._got.append(delivery)
            self.replies.append(method)
        else:
            self.pending.append(delivery)

    @staticmethod
    def _route(method: Method) -> dict[str, Any]:
        return {"exchange": method.exchange, "routing_key": method.routing_key}

    def wait_until(self, condition: Callable[[], bool], what: str, timeout: float | None = None) -> None:
        """Read frames until `condition` holds."""
        deadline = time.monotonic() + (self.connection.timeout if timeout is None else timeout)
        while not condition():
            if self.closed is not None:
                raise self.closed
            try:
                self.connection.read(deadline - time.monotonic())
            except TimeoutError:
                raise TimeoutError(f"no {what} on channel {self.number} in time") from None

    # Sending

    def send(self, kind: MethodType, **arguments: Any) -> None:
        """Send a method on this channel without waiting."""
        self.connection.wire.send_method(self.number, kind, **arguments)

    def rpc(self, kind: MethodType, *replies: MethodType, **arguments: Any) -> Method:
        """Send a method and wait for one of `replies`, by default the reply that pamqp lists."""
        expected = replies or tuple(_by_name(name) for name in kind.valid_responses)
        self.send(kind, **arguments)
        return self.reply(*expected)

    def reply(self, *kinds: MethodType, timeout: float | None = None) -> Method:
        """Wait for the next reply and assert that it is one of `kinds`."""
        self.wait_until(lambda: bool(self.replies), f"reply ({', '.join(k.name for k in kinds)})", timeout)
        method = self.replies.popleft()
        assert method.kind in kinds, f"one of {[kind.name for kind in kinds]} expected, got {method}"
        return method

    def publish(
        self,
        exchange: Name = "",
        routing_key: Name = "",
        body: bytes = b"",
        properties: Mapping[str, Any] | bytes | None = None,
        *,
        header: bytes | None = None,
        mandatory: bool = False,
        immediate: bool = False,
    ) -> None:
        """basic.publish with its content, in one write."""
        if header is None:
            if not isinstance(properties, bytes):
                properties = content.properties(**(properties or {}))
            header = content.header(len(body), properties)
        route = {"exchange": exchange, "routing_key": routing_key}
        payload = methods.payload(commands.Basic.Publish, **route, mandatory=mandatory, immediate=immediate)
        chunk = self.connection.frame_max - 8
        out = [frame(METHOD, self.number, payload), frame(HEADER, self.number, header)]
        out += [frame(BODY, self.number, body[at : at + chunk]) for at in range(0, len(body), chunk)]
        self.connection.wire.send_bytes(b"".join(out))

    # Messages

    def get(self, queue: Name = "", *, no_ack: bool = False) -> Delivery | None:
        """basic.get; None when the queue is empty."""
        reply = self.rpc(commands.Basic.Get, commands.Basic.GetOk, commands.Basic.GetEmpty, queue=queue, no_ack=no_ack)
        return self._got.pop(0) if reply.kind is commands.Basic.GetOk else None

    def next_delivery(self, timeout: float | None = None) -> Delivery:
        """Wait for the next delivery to a consumer of this channel."""
        self.wait_until(lambda: bool(self.pending), "delivery", timeout)
        return self.pending.popleft()

    def deliveries(self, count: int, timeout: float | None = None) -> list[Delivery]:
        """Wait for `count` deliveries and return them, in order."""
        self.wait_until(lambda: len(self.pending) >= count, f"{count} deliveries", timeout)
        return [self.pending.popleft() for _ in range(count)]

    def next_return(self, timeout: float | None = None) -> Returned:
        """Wait for the next returned message."""
        self.wait_until(lambda: bool(self.returns), "return", timeout)
        return self.returns.popleft()

    def wait_for_confirms(self, count: int, timeout: float | None = None) -> list[bool]:
        """Wait until the publishes 1..count of a new confirm channel are confirmed; return True for each ack.

        Removes the confirms, so call it once per channel.
        """
        settled: dict[int, bool] = {}

        def complete() -> bool:
            while self.confirms:
                confirm = self.confirms.popleft()
                first = 1 if confirm.multiple else confirm.delivery_tag
                for tag in range(first, confirm.delivery_tag + 1):
                    settled.setdefault(tag, confirm.ack)
            return len(settled) >= count

        self.wait_until(complete, f"{count} confirms", timeout)
        assert sorted(settled) == list(range(1, count + 1))
        return [settled[tag] for tag in sorted(settled)]

    def sync(self, *queues: Name) -> None:
        """Read everything that the broker sends in response to earlier requests of this channel."""
        for queue in queues:
            self.queue_declare(queue, passive=True)
        self.flow(True)

    def expect_no_delivery(self, *queues: Name) -> None:
        """Assert, after round trips through the channel and these queues, that nothing was delivered."""
        self.sync(*queues)
        assert not self.pending, f"unexpected deliveries: {[delivery.body[:40] for delivery in self.pending]}"

    # Closing

    def close(self, code: int = 200, text: str = "") -> None:
        """Send channel.close and wait for close-ok."""
        self.rpc(commands.Channel.Close, reply_code=code, reply_text=text, class_id=0, method_id=0)
        self.connection.forget(self)

    @contextmanager
    def expect_channel_close(
        self, code: int, text: str, ids: tuple[int, int] | MethodType | None = None
    ) -> Iterator[None]:
        """Assert that the broker sends this channel.close during the block or after it."""
        try:
            yield
            self.wait_until(lambda: self.closed is not None, "channel.close")
        except ChannelClosed:
            pass
        assert self.closed is not None
        self.closed.check(code, text, ids)

    def expect_connection_close(
        self, code: int, text: str, ids: tuple[int, int] | MethodType | None = None
    ) -> AbstractContextManager[None]:
        """Call `Connection.expect_connection_close` of this channel's connection."""
        return self.connection.expect_connection_close(code, text, ids)


def _reply(method: Method) -> dict[str, Any]:
    return {"reply_code": method.reply_code, "reply_text": method.reply_text}


def _by_name(name: str) -> MethodType:
    group, method = name.split(".")
    kind: MethodType = getattr(getattr(commands, group), method)
    return kind
