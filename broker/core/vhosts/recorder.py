"""Records durable definitions of a virtual host: exchanges, queues, bindings and policies.

Names may be any bytes; they are stored as text with surrogate escapes, which JSON supports. Field tables are stored in
their wire format, so that no type is lost.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

from leveret.broker.core.definitions_gate import DefinitionsGate
from leveret.broker.core.exchanges.base import Binding, Exchange
from leveret.broker.core.exchanges.remembering import DeduplicatingExchange
from leveret.broker.core.exchanges.types import DelayedExchange
from leveret.broker.core.message_stores import MessageStores
from leveret.broker.core.queues.queue import Queue
from leveret.policies.policy import Policy
from leveret.protocol.faults import not_found
from leveret.protocol.field_table import MAX_STORED_DEPTH, FieldTable, decode_table, encode_table
from leveret.storage.definitions_database import Journal, Key, NoJournal


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
    """Writes durable definitions of one virtual host to a journal.

    Args:
        journal: Where definitions are written; None to write nothing.
        gate: Delays replies that depend on unwritten definitions; None without a data directory.

    Attributes:
        journal: See Args.
    """

    __slots__ = ("_gate", "_vhost_name", "journal")

    def __init__(self, vhost_name: str, journal: Journal | None = None, gate: DefinitionsGate | None = None) -> None:
        self._vhost_name = vhost_name
        self.journal = NoJournal() if journal is None else journal
        self._gate = gate

    def rely_on(self, kind: str, name: str) -> None:
        """Note that a reply depends on a queue or exchange; see DefinitionsGate."""
        if self._gate is not None:
            self._gate.rely_on(kind, (self._vhost_name, name))

    def refuse_if_failing(self, kind: str, name: str) -> None:
        """Refuse a new durable queue or exchange while definitions cannot be written.

        Raises:
            ConnectionFault: RESOURCE_ERROR (506).
        """
        if self._gate is not None:
            self._gate.refuse_if_failing(f"{kind} '{name}' in vhost '{self._vhost_name}'")

    def exchange_declared(self, exchange: Exchange) -> None:
        """Record a new exchange if it is durable."""
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

    def exchange_deleted(self, exchange: Exchange) -> None:
        """Record the deletion of an exchange."""
        if exchange.durable:
            self.journal.delete("exchange", (self._vhost_name, exchange.name))

    def queue_declared(self, queue: Queue) -> None:
        """Record a new queue if it is durable."""
        if queue.durable:
            value = {
                "auto_delete": queue.auto_delete,
                "arguments": table_to_text(queue.arguments),
                "qid": queue.backing.qid,
            }
            self.journal.put("queue", (self._vhost_name, queue.name), value)

    def queue_deleted(self, queue: Queue) -> None:
        """Record the deletion of a queue."""
        if queue.durable:
            self.journal.delete("queue", (self._vhost_name, queue.name))

    def bound(self, binding: Binding) -> None:
        """Record a new binding if its source and destination are durable."""
        if _is_durable(binding):
            self.journal.put("binding", self._binding_key(binding), {})

    def unbound(self, binding: Binding) -> None:
        """Record the removal of a binding."""
        if _is_durable(binding):
            self.journal.delete("binding", self._binding_key(binding))

    def policy_set(self, policy: Policy, operator: bool) -> None:
        """Record a new or changed policy."""
        value: dict[str, Any] = {
            "pattern": policy.pattern,
            "definition": dict(policy.definition),
            "priority": policy.priority,
            "apply-to": policy.apply_to,
        }
        self.journal.put(_policy_kind(operator), (self._vhost_name, policy.name), value)

    def policy_cleared(self, name: str, operator: bool) -> None:
        """Record the removal of a policy."""
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
