"""Records durable definitions of a virtual host: exchanges, queues, bindings and policies; tells of all changes.

Names may be any bytes; they are stored as text with surrogate escapes, which JSON supports. Field tables are stored in
their wire format, so that no type is lost.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

from leveret.broker.core.definitions_gate import ALWAYS_OPEN, DefinitionsGate
from leveret.broker.core.events import Events, named
from leveret.broker.core.exchanges.base import Binding, Exchange
from leveret.broker.core.exchanges.types import DeduplicatingExchange, DelayedExchange
from leveret.broker.core.message_stores import MessageStores
from leveret.broker.core.queues.queue import Queue
from leveret.broker.core.queues.traits import DEFAULT_RELEASE
from leveret.broker.core.vhosts.event_fields import (
    binding_fields,
    exchange_fields,
    operator_policy_parameter,
    parameter_fields,
    policy_fields,
    queue_fields,
)
from leveret.policies.policy import Policy
from leveret.protocol.faults import not_found
from leveret.protocol.field_table import MAX_STORED_DEPTH, FieldTable, decode_table, encode_table
from leveret.storage.clock import Clock
from leveret.storage.definitions_database import Journal, Key


def table_to_text(table: FieldTable) -> str:
    """Encode a field table as text without loss."""
    return base64.b64encode(encode_table(table)).decode("ascii")


def table_from_text(text: str) -> FieldTable:
    """Decode a field table that table_to_text encoded.

    Raises:
        ValueError: The text is not such a table.
    """
    return decode_table(base64.b64decode(text, validate=True), MAX_STORED_DEPTH)


class DurableRecorder:
    """Writes durable definitions of one virtual host to a journal, and tells what has become of any definition.

    Args:
        journal: Where definitions are written; by default nowhere.
        gate: Delays replies that depend on unwritten definitions; by default none.
        events: Who is told of changes; None for nobody.

    Attributes:
        journal: See Args.
        events: See Args.
    """

    __slots__ = ("_gate", "_vhost_name", "events", "journal")

    def __init__(
        self,
        vhost_name: str,
        journal: Journal = ALWAYS_OPEN,
        gate: DefinitionsGate = ALWAYS_OPEN,
        events: Events | None = None,
    ) -> None:
        self._vhost_name = vhost_name
        self.journal = journal
        self._gate = gate
        self.events = Events(Clock()) if events is None else events

    def rely_on(self, kind: str, name: str) -> None:
        """Note that a reply depends on a queue or exchange; see DefinitionsGate."""
        self._gate.rely_on(kind, (self._vhost_name, name))

    def refuse_if_failing(self, kind: str, name: str) -> None:
        """Refuse a new durable queue or exchange while definitions cannot be written.

        Raises:
            ConnectionFault: RESOURCE_ERROR (506).
        """
        self._gate.refuse_if_failing(f"{kind} '{name}' in vhost '{self._vhost_name}'")

    def exchange_declared(self, exchange: Exchange) -> None:
        """Tell of a new exchange, and record it if it is durable."""
        self.events.tell("exchange.created", exchange_fields, exchange)
        if exchange.durable:
            value: dict[str, Any] = {
                "type": exchange.type_name,
                "auto_delete": exchange.auto_delete,
                "internal": exchange.internal,
                "arguments": table_to_text(exchange.arguments),
            }
            if isinstance(exchange, DelayedExchange) and exchange.waiting is not None:
                value["qid"] = exchange.waiting.backing.qid
            values_qid = values_qid_of(exchange)
            if values_qid is not None:
                value["values_qid"] = values_qid
            self.journal.put("exchange", (self._vhost_name, exchange.name), value)

    def exchange_deleted(self, exchange: Exchange, by_broker: bool = False) -> None:
        """Record the deletion of an exchange.

        Args:
            by_broker: Whether it goes with something else.
        """
        self.events.tell("exchange.deleted", named, self._vhost_name, exchange.name, by_broker=by_broker)
        if exchange.durable:
            self.journal.delete("exchange", (self._vhost_name, exchange.name))

    def queue_declared(self, queue: Queue) -> None:
        """Tell of a new queue, and record it if it is durable."""
        self.events.tell("queue.created", queue_fields, queue)
        if queue.durable:
            value: dict[str, Any] = {
                "auto_delete": queue.auto_delete,
                "arguments": table_to_text(queue.arguments),
                "qid": queue.backing.qid,
            }
            if queue.traits.release != DEFAULT_RELEASE:
                value["release"] = queue.traits.release
            self.journal.put("queue", (self._vhost_name, queue.name), value)

    def queue_deleted(self, queue: Queue) -> None:
        """Record the deletion of a queue; its event is told with the number of its messages."""
        if queue.durable:
            self.journal.delete("queue", (self._vhost_name, queue.name))

    def bound(self, binding: Binding) -> None:
        """Tell of a new binding, and record it if its source and destination are durable."""
        self.events.tell("binding.created", binding_fields, self._vhost_name, binding)
        if _is_durable(binding):
            self.journal.put("binding", self._binding_key(binding), {})

    def unbound(self, binding: Binding, by_broker: bool = False) -> None:
        """Record the removal of a binding.

        Args:
            by_broker: Whether it goes with something else.
        """
        self.events.tell("binding.deleted", binding_fields, self._vhost_name, binding, by_broker=by_broker)
        if _is_durable(binding):
            self.journal.delete("binding", self._binding_key(binding))

    def policy_set(self, policy: Policy, operator: bool) -> None:
        """Record a new or changed policy."""
        if operator:
            self.events.tell("parameter.set", operator_policy_parameter, self._vhost_name, policy)
        self.events.tell("policy.set", policy_fields, self._vhost_name, policy)
        value: dict[str, Any] = {
            "pattern": policy.pattern,
            "definition": dict(policy.definition),
            "priority": policy.priority,
            "apply-to": policy.apply_to,
        }
        self.journal.put(_policy_kind(operator), (self._vhost_name, policy.name), value)

    def policy_cleared(self, name: str, operator: bool) -> None:
        """Record the removal of a policy."""
        if operator:
            self.events.tell("parameter.cleared", parameter_fields, self._vhost_name, "operator_policy", name)
        self.events.tell("operator.policy.cleared" if operator else "policy.cleared", named, self._vhost_name, name)
        self.journal.delete(_policy_kind(operator), (self._vhost_name, name))

    def _binding_key(self, binding: Binding) -> tuple[str, ...]:
        identity = binding.identity
        arguments = table_to_text(binding.arguments)
        ends = (identity.source, identity.destination_type, identity.destination)
        return (self._vhost_name, *ends, identity.routing_key, arguments)


def _policy_kind(operator: bool) -> str:
    return "operator_policy" if operator else "policy"


def _is_durable(binding: Binding) -> bool:
    return binding.source.durable and binding.destination.durable


def values_qid_of(exchange: Exchange) -> int | None:
    """Return the number on disk of the values that an exchange remembers; None if they are not on disk."""
    inner = exchange.router()
    if not isinstance(inner, DeduplicatingExchange) or inner.duplicates is None or inner.duplicates.log is None:
        return None
    return inner.duplicates.log.backing.qid


class Unrestored:
    """Definitions of one virtual host that could not be restored.

    Args:
        recorder: Its journal contains the definitions.
        stores: The message stores of the queues.
    """

    __slots__ = ("_reasons", "_recorder", "_stores", "_vhost_name")

    def __init__(self, vhost_name: str, recorder: DurableRecorder, stores: MessageStores) -> None:
        self._vhost_name = vhost_name
        self._recorder = recorder
        self._stores = stores
        #: Reasons by kind and key.
        self._reasons: dict[tuple[str, Key], str] = {}

    def add(self, kind: str, key: Key, reason: str) -> None:
        """Add a definition that could not be restored.

        Args:
            kind: Kind in the database, such as ``queue``.
            key: Key in the database; the virtual host comes first.
            reason: Why it could not be restored.
        """
        self._reasons[kind, key] = reason

    def refuse(self, kind: str, name: str) -> None:
        """Refuse to declare a queue or exchange that is still on disk, because its messages would be lost.

        Args:
            kind: ``queue`` or ``exchange``.
            name: Name of the queue or exchange.
        Raises:
            ChannelFault: NOT_FOUND (404), as for a queue that RabbitMQ knows and cannot reach.
        """
        reason = self._reasons.get((kind, (self._vhost_name, name)))
        if reason is not None:
            raise not_found(
                f"{kind} '{name}' in vhost '{self._vhost_name}' could not be restored: {reason}; delete it to declare"
                " it again"
            )

    def has(self, kind: str, name: str) -> bool:
        """Check whether a definition could not be restored."""
        return (kind, (self._vhost_name, name)) in self._reasons

    def delete(self, kind: str, name: str) -> bool:
        """Delete an unrestored definition with its bindings and messages; return whether it existed.

        Args:
            kind: ``queue``, ``exchange``, ``policy`` or ``operator_policy``.
            name: Name of the queue, exchange or policy.
        """
        if not self.has(kind, name):
            return False
        self._forget(kind, (self._vhost_name, name))
        if kind in ("queue", "exchange"):
            self._stores.delete_unrestored(self._vhost_name, name, kind)
        self.delete_bindings(kind, name)
        return True

    def delete_bindings(self, kind: str, name: str) -> None:
        """Delete the unrestored bindings of a queue or exchange that is deleted."""
        for each in list(self._bindings_of(kind, name)):
            self._forget("binding", each)

    def delete_all(self) -> None:
        """Delete all of them, because the virtual host is deleted."""
        for kind, key in list(self._reasons):
            self._forget(kind, key)
            if kind in ("queue", "exchange"):
                self._stores.delete_unrestored(key[0], key[1], kind)

    def _bindings_of(self, kind: str, name: str) -> Iterator[Key]:
        for each, key in self._reasons:
            # A damaged key may have another length.
            if each == "binding" and len(key) == 6:
                _, source, destination_type, destination, *_ = key
                if (destination_type, destination) == (kind, name) or (kind == "exchange" and source == name):
                    yield key

    def _forget(self, kind: str, key: Key) -> None:
        del self._reasons[kind, key]
        self._recorder.journal.delete(kind, key)
