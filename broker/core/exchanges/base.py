"""The base class of exchange types, and bindings: from an exchange to a queue or to another exchange."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final, NamedTuple, TypeAlias

from leveret.broker.core.counters.counters import ExchangeCounters
from leveret.broker.core.messages import Remembering, Target
from leveret.broker.core.queues.queue import Queue
from leveret.broker.core.terms import Term, table_to_term
from leveret.policies.policy import Policy
from leveret.protocol.field_table import FieldTable, as_text, find, sort_table

#: Routing keys that are evaluated in one step.
_STEP: Final = 256


class Exchange:
    """An exchange with its bindings, which finds the destinations of a message.

    Each exchange type is a subclass with a type name and an index of its bindings; see ``registry``.

    Args:
        durable: Whether it survives a restart.
        auto_delete: Whether it is deleted with its last binding as a source.
        internal: Whether clients cannot publish to it.
        since: Time of its creation, in seconds since 1970.
    Raises:
        ChannelFault: PRECONDITION_FAILED (406): the exchange type does not accept the arguments.

    Attributes:
        type_name: Name of the type in declarations.
        description: What the HTTP API says about the type.
        uses_headers: Whether routing depends on message headers, so that routes cannot be cached by routing key.
        uses_keys: Whether routing depends on routing keys; if not, only one key of a message is evaluated.
        varies: Whether equal messages may go to different destinations, so that each message is routed by itself.
        has_memory: Whether it keeps, filters or remembers messages: keeper(), router(), filtered() and history().
        alternate: Name of the alternate exchange, which need not exist; None if there is none. It is set by an argument
            or by Topology.set_alternate.
        bindings: Bindings of which it is the source, by identity.
        policy: The policy in force; None if there is none.
        counters: Counters of published and routed messages.
    """

    __slots__ = (
        "alternate", "arguments", "auto_delete", "bindings", "counters", "durable", "internal", "name", "policy",
        "uses_headers", "vhost_name",
    )  # fmt: skip

    type_name: ClassVar[str]
    description: ClassVar[str]
    uses_keys: ClassVar[bool] = True
    varies: ClassVar[bool] = False
    has_memory: ClassVar[bool] = False

    def __init__(
        self,
        vhost_name: str,
        name: str,
        durable: bool = True,
        auto_delete: bool = False,
        internal: bool = False,
        arguments: FieldTable = (),
        since: int = 0,
    ) -> None:
        self.vhost_name = vhost_name
        self.name = name
        self.durable = durable
        self.auto_delete = auto_delete
        self.internal = internal
        self.arguments = arguments
        self.alternate = self.declared_alternate
        self.bindings: dict[BindingIdentity, Binding] = {}
        self.policy: Policy | None = None
        self.counters = ExchangeCounters(since)
        self.uses_headers = False
        self._create_index()

    @property
    def declared_alternate(self) -> str | None:
        """Name of the alternate exchange in the arguments; None if there is none."""
        field = find(self.arguments, "alternate-exchange")
        return as_text(field) if field is not None and field.kind == "S" else None

    def bind(self, binding: Binding) -> bool:
        """Add a binding of which this exchange is the source.

        Returns:
            False if it exists already.
        Raises:
            ChannelFault: PRECONDITION_FAILED (406): the exchange type does not accept its arguments.
        """
        if binding.identity in self.bindings:
            return False
        self._add(binding)
        self.bindings[binding.identity] = binding
        return True

    def unbind(self, binding: Binding) -> bool:
        """Remove a binding.

        Args:
            binding: The binding, or one with the same identity.
        Returns:
            False if it does not exist.
        """
        known = self.bindings.pop(binding.identity, None)
        if known is None:
            return False
        self._remove(known)
        return True

    @abstractmethod
    def _create_index(self) -> None:
        """Check the arguments and create the index that _add and _remove maintain; called by the constructor."""

    @abstractmethod
    def _add(self, binding: Binding) -> None:
        """Add a new binding to the index, or raise a ChannelFault without a change."""

    @abstractmethod
    def _remove(self, binding: Binding) -> None:
        """Remove a binding from the index; the object is the same that was added."""

    def find(self, keys: Sequence[str], headers: FieldTable, header: bytes) -> Iterable[Destination | None]:
        """Find the destinations of a message.

        Args:
            keys: The routing key of the message, then those of CC and BCC, without duplicates.
            headers: The message's headers.
            header: The content header that has the message's properties; empty for a message without properties.
        Returns:
            As destinations().
        """
        if len(keys) == 1 or not self.uses_keys:
            return self.destinations(keys[0], headers)
        return self._find_by_each(keys, headers)

    def _find_by_each(self, keys: Sequence[str], headers: FieldTable) -> Iterator[Destination | None]:
        for count, key in enumerate(keys, 1):
            yield from self.destinations(key, headers)
            if count % _STEP == 0:
                yield None

    def apply_policy(self, definition: Mapping[str, Any]) -> None:
        """Let the keys of a policy replace what the type reads in the arguments.

        Args:
            definition: The definition of the policy in force; empty without one.
        """

    def close(self) -> None:
        """Forget what it keeps or remembers, because it has been deleted."""

    def keeper(self, headers: FieldTable) -> Target | None:
        """Return what keeps a message with these headers until it is due; None if it is routed at once."""
        return None

    def router(self) -> Exchange:
        """Return the exchange that finds destinations: that inside a delayed one, or the exchange itself."""
        return self

    @property
    def is_filter(self) -> bool:
        """Whether filtered() takes the place of what is behind it."""
        return False

    def filtered(
        self, behind: tuple[Target, ...], histories: tuple[Remembering, ...], counters: ExchangeCounters | None
    ) -> Target:
        """Return what takes messages in place of what is behind a filter; requires is_filter.

        Args:
            behind: What the destinations of its bindings lead to.
            histories: What has to remember the messages that pass.
            counters: Counters of the exchange that the messages were published to, if routed messages are counted.
        """
        raise NotImplementedError

    def history(self, headers: FieldTable) -> Remembering | None:
        """Return what has to remember a message with these headers; None for nothing."""
        return None

    @abstractmethod
    def destinations(self, routing_key: str, headers: FieldTable) -> Iterable[Destination | None]:
        """Find the destinations of the bindings that a message matches.

        Args:
            routing_key: One of the message's routing keys.
            headers: The message's headers; may be empty for types that do not use them.
        Returns:
            The destinations, possibly with duplicates. If the search takes long, it yields None now and then, so that
            the caller can serve other clients.
        """


Destination: TypeAlias = Exchange | Queue


class BindingIdentity(NamedTuple):
    """The key of a binding in its virtual host.

    Args:
        source: Name of the source exchange.
        destination_type: ``exchange`` or ``queue``.
        destination: Name of the destination.
        routing_key: Routing key or pattern.
        arguments: The term of the arguments, sorted by key: types matter, their order does not.
    """

    source: str
    destination_type: str
    destination: str
    routing_key: str
    arguments: Term


class Binding:
    """One immutable binding.

    Args:
        destination: The destination queue or exchange.
        routing_key: Routing key or pattern, interpreted by the source.
        arguments: Binding arguments in any order.

    Attributes:
        arguments: Binding arguments, sorted by key.
        identity: Equal for bindings that RabbitMQ considers the same.
    """

    __slots__ = ("arguments", "destination", "identity", "routing_key", "source")

    def __init__(
        self, source: Exchange, destination: Destination, routing_key: str, arguments: FieldTable = ()
    ) -> None:
        self.source = source
        self.destination = destination
        self.routing_key = routing_key
        self.arguments = sort_table(arguments)
        self.identity = BindingIdentity(
            source.name,
            "exchange" if isinstance(destination, Exchange) else "queue",
            destination.name,
            routing_key,
            table_to_term(self.arguments),
        )
