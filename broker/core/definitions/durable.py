"""Records durable definitions of a virtual host: exchanges, queues, bindings and policies.

Names may be any bytes; they are stored as text with surrogate escapes, which JSON supports. Field tables are stored in
their wire format, so that no type is lost.
"""

from __future__ import annotations

import base64
from typing import Any

from leveret.broker.core.definitions.gate import DefinitionsGate
from leveret.broker.core.exchanges.base import Binding, Exchange
from leveret.broker.core.exchanges.deduplicating import DeduplicatingExchange
from leveret.broker.core.exchanges.delayed import DelayedExchange, inner_of
from leveret.broker.core.queues.queue import Queue
from leveret.policies.policy import Policy
from leveret.protocol.field_table import MAX_STORED_DEPTH, FieldTable, decode_table, encode_table
from leveret.storage.definitions_database import Journal, NoJournal


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
        vhost_name: Name of the virtual host.
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
    inner = inner_of(exchange)
    if not isinstance(inner, DeduplicatingExchange) or inner.duplicates is None or inner.duplicates.log is None:
        return None
    return inner.duplicates.log.backing.qid
