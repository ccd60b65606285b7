"""The requests of a channel, one Python method per AMQP method."""

from __future__ import annotations

from typing import Any

from pamqp import commands

from tests.support.methods import Method, MethodType
from tests.support.tables import Triple

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
