"""Exchanges, queues and bindings of a virtual host."""

from __future__ import annotations

import base64
import secrets
from collections.abc import Callable, Collection, Iterable
from typing import Final

from leveret.broker.core.exchanges.amqp_types import DEFAULT_EXCHANGE, DefaultExchange, refuse_default
from leveret.broker.core.exchanges.base import Binding, BindingIdentity, Destination, Exchange
from leveret.broker.core.exchanges.types import EXCHANGE_TYPES, check_exchange_type
from leveret.broker.core.queues.queue import Queue
from leveret.broker.core.terms import check_equal, check_flag, check_name
from leveret.broker.core.vhosts.recorder import DurableRecorder
from leveret.protocol.erlang_terms import format_atom
from leveret.protocol.faults import access_refused, not_found, precondition_failed
from leveret.protocol.field_table import TYPE_NAMES, FieldTable, find
from leveret.storage.clock import Clock

_ALTERNATE: Final = "alternate-exchange"
_RESERVED_PREFIX: Final = "amq."
#: Predeclared durable exchanges of every virtual host: name, type, internal.
_PREDECLARED: Final = (
    ("amq.direct", "direct", False),
    ("amq.fanout", "fanout", False),
    ("amq.headers", "headers", False),
    ("amq.match", "headers", False),
    ("amq.rabbitmq.trace", "topic", True),
    ("amq.topic", "topic", False),
)


class Topology:
    """The exchanges, queues and bindings of one virtual host.

    Args:
        recorder: Records durable definitions; None to record nothing.
        on_exchange_deleted: Called with every deleted exchange.

    Attributes:
        exchanges: Exchanges by name.
        queues: Queues by name.
        generation: Incremented by every change that can affect routes, to invalidate cached ones.
    """

    def __init__(
        self,
        vhost_name: str,
        recorder: DurableRecorder | None = None,
        clock: Clock | None = None,
        on_exchange_deleted: Callable[[Exchange], None] = lambda exchange: None,
    ) -> None:
        self.vhost_name = vhost_name
        self._recorder = recorder or DurableRecorder(vhost_name)
        self._clock = clock or Clock()
        self.queues: dict[str, Queue] = {}
        now = self._clock.seconds()
        self.exchanges: dict[str, Exchange] = {DEFAULT_EXCHANGE: DefaultExchange(vhost_name, self.queues, now)}
        self.generation = 0
        self._predeclared = [DEFAULT_EXCHANGE]
        self._on_exchange_deleted = on_exchange_deleted
        self._bindings_to: dict[Destination, dict[BindingIdentity, Binding]] = {}
        for name, type_name, internal in _PREDECLARED:
            self.predeclare(name, type_name, internal)

    # -- exchanges ----------------------------------------------------------------------------------------

    def predeclare(self, name: str, type_name: str, internal: bool) -> None:
        """Add a durable exchange that exists as long as the virtual host, and is not recorded."""
        since = self._clock.seconds()
        self.exchanges[name] = EXCHANGE_TYPES[type_name](self.vhost_name, name, internal=internal, since=since)
        self._predeclared.append(name)

    def exchange(self, name: str) -> Exchange:
        """Find an exchange.

        Raises:
            ChannelFault: NOT_FOUND (404).
        """
        exchange = self.exchanges.get(name)
        if exchange is None:
            raise not_found(f"no exchange '{name}' in vhost '{self.vhost_name}'")
        self._recorder.rely_on("exchange", name)
        return exchange

    def refuse_deletion(self, name: str) -> None:
        """Refuse to delete the default exchange, and exchanges with reserved names.

        Raises:
            ChannelFault: ACCESS_REFUSED (403).
        """
        refuse_default(name)
        if name.startswith(_RESERVED_PREFIX):
            raise access_refused(f"deletion of system exchange '{name}' in vhost '{self.vhost_name}' not allowed")

    def declare_exchange(
        self,
        name: str,
        type_name: str,
        durable: bool,
        auto_delete: bool,
        internal: bool,
        arguments: FieldTable,
        prepare: Callable[[Exchange], None] = lambda exchange: None,
    ) -> Exchange:
        """Declare an exchange: check an existing one for equivalence, or create it.

        Args:
            name: Name of the exchange.
            type_name: An existing type, see registry.check_exchange_type.
            durable: The durable bit.
            auto_delete: The auto-delete bit.
            internal: The internal bit.
            arguments: Arguments as received.
            prepare: Called with a new exchange before it is added.
        Raises:
            ChannelFault: ACCESS_REFUSED (403) for a new name that is reserved, PRECONDITION_FAILED (406).
        """
        refuse_default(name)
        check_exchange_type(type_name)
        existing = self.exchanges.get(name)
        if existing is not None:
            # As RabbitMQ prints atoms: the names of plugins' types are quoted twice.
            types = format_atom(type_name), format_atom(existing.type_name)
            check_name("exchange", name, self.vhost_name, "type", *types)
            check_flag("exchange", name, self.vhost_name, "durable", durable, existing.durable)
            check_flag("exchange", name, self.vhost_name, "auto_delete", auto_delete, existing.auto_delete)
            check_flag("exchange", name, self.vhost_name, "internal", internal, existing.internal)
            received, current = find(arguments, _ALTERNATE), find(existing.arguments, _ALTERNATE)
            check_equal("exchange", name, self.vhost_name, _ALTERNATE, received, current)
            self._recorder.rely_on("exchange", name)
            return existing
        self._check_new_exchange(name, arguments)
        exchange_type = EXCHANGE_TYPES[type_name]
        now = self._clock.seconds()
        exchange = exchange_type(self.vhost_name, name, durable, auto_delete, internal, arguments, now)
        prepare(exchange)
        self.exchanges[name] = exchange
        self._recorder.exchange_declared(exchange)
        # It may be the alternate exchange of an existing exchange.
        self.generation += 1
        return exchange

    def delete_exchange(self, name: str, if_unused: bool) -> None:
        """Delete an exchange with its bindings. Does nothing if it does not exist.

        Auto-delete exchanges that lose their last binding are deleted, too.

        Args:
            name: Name of the exchange.
            if_unused: Refuse if it is the source of a binding.
        Raises:
            ChannelFault: ACCESS_REFUSED (403) for the default exchange and reserved names;
                PRECONDITION_FAILED (406) if if_unused is set and it is used.
        """
        self.refuse_deletion(name)
        exchange = self.exchanges.get(name)
        if exchange is None:
            return
        if if_unused and exchange.bindings:
            raise precondition_failed(f"exchange '{name}' in vhost '{self.vhost_name}' in use")
        self._delete_exchanges([exchange])

    def delete_all(self) -> None:
        """Delete all bindings, and all exchanges but the predeclared ones."""
        self._drop([binding for exchange in self.exchanges.values() for binding in exchange.bindings.values()])
        self._delete_exchanges([each for name, each in self.exchanges.items() if name not in self._predeclared])

    def set_alternate(self, exchange: Exchange, name: str | None) -> None:
        """Set the alternate exchange that a policy names.

        Args:
            exchange: The exchange to change. An alternate exchange in its arguments takes precedence.
            name: Name of the alternate exchange, which need not exist; None for none.
        """
        alternate = exchange.declared_alternate
        exchange.alternate = name if alternate is None else alternate
        self.generation += 1

    # -- queues -------------------------------------------------------------------------------------------

    def add_queue(self, queue: Queue) -> None:
        """Add a queue, so that messages can be routed to it."""
        self.queues[queue.name] = queue
        self.generation += 1

    def remove_queue(self, queue: Queue) -> None:
        """Remove a queue and its bindings; auto-delete exchanges that lose their last binding are deleted."""
        del self.queues[queue.name]
        self.generation += 1
        self._delete_exchanges(self._drop(self.bindings_of(queue), by_broker=True), by_broker=True)

    # -- bindings -----------------------------------------------------------------------------------------

    def bindings_of(self, destination: Destination) -> Collection[Binding]:
        """Return the bindings to a queue or an exchange, without the implicit one of a queue."""
        return tuple(self._bindings_to.get(destination, {}).values())

    def bind(self, source: Exchange, destination: Destination, key: str, arguments: FieldTable) -> bool:
        """Bind an existing destination to an existing source.

        Args:
            destination: The destination queue or exchange.
            key: Routing key or pattern.
            arguments: Arguments as received.
        Returns:
            False if the binding exists already.
        Raises:
            ChannelFault: ACCESS_REFUSED (403) for the default exchange; PRECONDITION_FAILED (406) for arguments
                that the source's type does not accept.
        """
        self._refuse_default_ends(source, destination)
        binding = Binding(source, destination, key, arguments)
        if not source.bind(binding):
            return False
        self._bindings_to.setdefault(destination, {})[binding.identity] = binding
        self._recorder.bound(binding)
        self.generation += 1
        return True

    def unbind(self, source: Exchange, destination: Destination, key: str, arguments: FieldTable) -> bool:
        """Remove a binding; an auto-delete source that loses its last binding is deleted.

        Args:
            destination: The destination queue or exchange.
            key: Routing key or pattern of the binding.
            arguments: Arguments of the binding, in any order.
        Returns:
            False if the binding does not exist.
        Raises:
            ChannelFault: ACCESS_REFUSED (403) for the default exchange.
        """
        self._refuse_default_ends(source, destination)
        identity = Binding(source, destination, key, arguments).identity
        binding = source.bindings.get(identity)
        if binding is None:
            return False
        self._delete_exchanges(self._drop([binding]))
        return True

    # -- internal -----------------------------------------------------------------------------------------

    def _refuse_default_ends(self, source: Exchange, destination: Destination) -> None:
        refuse_default(source.name)
        if isinstance(destination, Exchange):
            refuse_default(destination.name)

    def _check_new_exchange(self, name: str, arguments: FieldTable) -> None:
        if name.startswith(_RESERVED_PREFIX):
            raise access_refused(f"exchange name '{name}' contains reserved prefix 'amq.*'")
        alternate = find(arguments, _ALTERNATE)
        if alternate is not None and alternate.kind != "S":
            raise precondition_failed(
                f"invalid type '{TYPE_NAMES[alternate.kind]}' for arg '{_ALTERNATE}'"
                f" in exchange '{name}' in vhost '{self.vhost_name}'"
            )

    def _drop(self, bindings: Iterable[Binding], by_broker: bool = False) -> list[Exchange]:
        """Remove existing bindings; return the auto-delete exchanges that have none left."""
        sources: dict[Exchange, None] = {}
        for binding in bindings:
            binding.source.unbind(binding)
            incoming = self._bindings_to[binding.destination]
            del incoming[binding.identity]
            if not incoming:
                del self._bindings_to[binding.destination]
            sources[binding.source] = None
            self._recorder.unbound(binding, by_broker)
            self.generation += 1
        return [source for source in sources if source.auto_delete and not source.bindings]

    def _delete_exchanges(self, exchanges: Iterable[Exchange], by_broker: bool = False) -> None:
        """Delete exchanges, then auto-delete exchanges that lost their last binding, and so on."""
        waiting = list(exchanges)
        while waiting:
            exchange = waiting.pop()
            if self.exchanges.get(exchange.name) is not exchange:
                continue
            del self.exchanges[exchange.name]
            self._recorder.exchange_deleted(exchange, by_broker)
            self._on_exchange_deleted(exchange)
            self.generation += 1
            self._drop(tuple(exchange.bindings.values()), by_broker)
            waiting += self._drop(self.bindings_of(exchange), by_broker)


def generate_name(prefix: str) -> str:
    """Generate a unique name.

    Args:
        prefix: Start of the name, for example ``amq.gen``.
    Returns:
        Prefix, dash, 22 characters of URL-safe base64 of 16 random bytes.
    """
    return f"{prefix}-{base64.urlsafe_b64encode(secrets.token_bytes(16)).rstrip(b'=').decode('ascii')}"


def strip_line_ends(name: str) -> str:
    """Remove CR and LF from a queue or exchange name, as RabbitMQ does in declarations."""
    return name.replace("\r", "").replace("\n", "")
