"""What all exchange types have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar

from leveret.broker.core.stats.counters import ExchangeCounters
from leveret.policies.policy import Policy
from leveret.protocol.field_table import FieldTable, as_text, find

if TYPE_CHECKING:
    from leveret.broker.core.bindings import Binding, BindingIdentity, Destination


class Exchange(ABC):
    """An exchange: knows the bindings that start at it, and which of them a message matches.

    A type is a subclass that names itself and keeps an index of its bindings; see ``registry``.

    Args:
        vhost_name: Its virtual host.
        name: Its name.
        durable: Survives a restart.
        auto_delete: Goes with the last binding that starts at it.
        internal: Cannot be published to.
        arguments: As declared.

    Attributes:
        type_name: What declarations call the type.
        uses_headers: Whether message headers decide, so that routes cannot be remembered by routing key.
        uses_keys: Whether routing keys decide: if not, a message with thousands of them is looked at once.
        alternate: Name of the exchange that gets what no binding matches; None if there is none. It need not exist.
            The argument sets it; Topology.set_alternate changes it.
        bindings: Those that start here, by identity.
        policy: The policy in force, if any.
        counters: What has come and gone here.
    """

    __slots__ = (
        "alternate", "arguments", "auto_delete", "bindings", "counters", "durable", "internal", "name", "policy",
        "vhost_name",
    )  # fmt: skip

    type_name: ClassVar[str]
    uses_headers: ClassVar[bool] = False
    uses_keys: ClassVar[bool] = True

    def __init__(
        self,
        vhost_name: str,
        name: str,
        durable: bool = True,
        auto_delete: bool = False,
        internal: bool = False,
        arguments: FieldTable = (),
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
        self.counters = ExchangeCounters()
        self._create_index()

    @property
    def declared_alternate(self) -> str | None:
        """The alternate exchange of the arguments."""
        field = find(self.arguments, "alternate-exchange")
        return as_text(field) if field is not None and field.kind == "S" else None

    def bind(self, binding: Binding) -> bool:
        """Add a binding that starts here.

        Returns:
            False if it is there already.
        Raises:
            ChannelFault: PRECONDITION_FAILED (406): the type does not accept its arguments.
        """
        if binding.identity in self.bindings:
            return False
        self._add(binding)
        self.bindings[binding.identity] = binding
        return True

    def unbind(self, binding: Binding) -> bool:
        """Take a binding away.

        Args:
            binding: It, or one with the same identity.
        Returns:
            False if there is no such binding.
        """
        known = self.bindings.pop(binding.identity, None)
        if known is None:
            return False
        self._remove(known)
        return True

    @abstractmethod
    def _create_index(self) -> None:
        """Set up what _add and _remove keep; part of construction."""

    @abstractmethod
    def _add(self, binding: Binding) -> None:
        """Index a new binding, or refuse it with a ChannelFault and change nothing."""

    @abstractmethod
    def _remove(self, binding: Binding) -> None:
        """Take a binding out of the index; it is the object that was added."""

    @abstractmethod
    def destinations(self, routing_key: str, headers: FieldTable) -> Iterable[Destination | None]:
        """Where a message goes from here.

        Args:
            routing_key: One of the message's keys.
            headers: The message's headers; empty is fine for types that do not use them.
        Returns:
            Destinations of the bindings it matches; one that several bindings lead to may come several times. Where
            finding them takes long, a None comes in between now and then: others may have their turn.
        """
