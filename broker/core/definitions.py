"""Definitions of the broker as a document, and their restoration at a start.

A definition that cannot be restored is logged and skipped. It remains on disk, with the messages of a queue.

Source: https://www.rabbitmq.com/docs/definitions
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from typing import Any, TypeAlias

from leveret.broker.core.broker import Broker
from leveret.broker.core.exchanges.base import Binding, Exchange
from leveret.broker.core.exchanges.types import DelayedExchange
from leveret.broker.core.json_values import table_to_json
from leveret.broker.core.queues.queue import Queue, QueueDeclaration
from leveret.broker.core.queues.traits import DEFAULT_RELEASE
from leveret.broker.core.vhosts.metadata import metadata_from_json
from leveret.broker.core.vhosts.recorder import table_from_text, values_qid_of
from leveret.broker.core.vhosts.vhost import VirtualHost
from leveret.policies.policy import Policy, read_policy
from leveret.policies.value_checks import VHOST_LIMITS
from leveret.protocol.faults import AmqpFault
from leveret.storage.definitions_database import DefinitionsDatabase, Key, Row


def export_vhosts(broker: Broker) -> list[dict[str, Any]]:
    """Return the section vhosts. RabbitMQ 3.10 writes names only, and reads the rest in ``metadata``."""
    return [_vhost(vhost) for vhost in broker.vhosts.values()]


def export_global_parameters(broker: Broker) -> list[dict[str, Any]]:
    """Return the section global_parameters."""
    return [{"name": name, "value": value} for name, value in sorted(broker.global_parameters.values.items())]


def export_parameters(broker: Broker, vhost: VirtualHost) -> list[dict[str, Any]]:
    """Return entries of the section parameters: operator policies, limits and those of other components."""
    entries: list[dict[str, Any]] = [
        {"value": policy.value, "vhost": vhost.name, "component": "operator_policy", "name": policy.name}
        for policy in vhost.policies.operator_policies.values()
    ]
    if vhost.has_limits:
        limits: dict[str, int] | list[int] = vhost_limits(vhost) or []
        entries.append({"value": limits, "vhost": vhost.name, "component": "vhost-limits", "name": "limits"})
    for (vhost_name, component, name), value in broker.parameters.values.items():
        if vhost_name == vhost.name:
            entries.append({"value": value, "vhost": vhost_name, "component": component, "name": name})
    return entries


def export_policies(vhost: VirtualHost) -> list[dict[str, Any]]:
    """Return entries of the section policies."""
    return [describe_policy(vhost.name, policy) for policy in vhost.policies.policies.values()]


def export_queues(vhost: VirtualHost) -> Iterator[dict[str, Any]]:
    """Yield entries of the section queues, without exclusive queues."""
    for queue in list(vhost.queues.values()):
        if queue.owner is None:
            yield _queue(vhost, queue)


def export_exchanges(vhost: VirtualHost) -> Iterator[dict[str, Any]]:
    """Yield entries of the section exchanges, without predeclared ones."""
    for exchange in list(vhost.topology.exchanges.values()):
        if exchange.name and not exchange.name.startswith("amq."):
            yield _exchange(vhost, exchange)


def export_bindings(vhost: VirtualHost) -> Iterator[dict[str, Any]]:
    """Yield entries of the section bindings, without implicit ones and those of exclusive queues."""
    for exchange in list(vhost.topology.exchanges.values()):
        for binding in list(exchange.bindings.values()):
            destination = binding.destination
            if isinstance(destination, Exchange) or destination.owner is None:
                yield _binding(vhost, binding)


def vhost_limits(vhost: VirtualHost) -> dict[str, int]:
    """Return the limits that are set on a virtual host, including negative ones."""
    values = dict(zip(VHOST_LIMITS, (vhost.max_connections, vhost.max_queues), strict=True))
    return {name: value for name, value in values.items() if value is not None}


def describe_policy(vhost_name: str, policy: Policy) -> dict[str, Any]:
    """Return a policy in the form of the HTTP API."""
    return {
        "vhost": vhost_name,
        "name": policy.name,
        "pattern": policy.pattern,
        "apply-to": policy.apply_to,
        "definition": dict(policy.definition),
        "priority": policy.priority,
    }


def for_vhost(document: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the sections that belong to virtual hosts, with all entries assigned to one virtual host."""
    sections = ("parameters", "policies", "queues", "exchanges", "bindings")
    return {
        section: [{**entry, "vhost": name} if isinstance(entry, Mapping) else entry for entry in entries]
        for section in sections
        if isinstance(entries := document.get(section), list)
    }


def _vhost(vhost: VirtualHost) -> dict[str, Any]:
    metadata = vhost.metadata
    described: dict[str, Any] = {"name": vhost.name}
    if metadata.description or metadata.tags or metadata.default_queue_type:
        values: dict[str, Any] = {"description": metadata.description, "tags": list(metadata.tags)}
        if metadata.default_queue_type:
            values["default_queue_type"] = metadata.default_queue_type
        described |= {**values, "metadata": values}
    return described


def _queue(vhost: VirtualHost, queue: Queue) -> dict[str, Any]:
    return {
        "name": queue.name,
        "vhost": vhost.name,
        "type": queue.queue_type,
        "durable": queue.durable,
        "auto_delete": queue.auto_delete,
        "arguments": table_to_json(queue.arguments),
    }


def _exchange(vhost: VirtualHost, exchange: Exchange) -> dict[str, Any]:
    return {
        "name": exchange.name,
        "vhost": vhost.name,
        "type": exchange.type_name,
        "durable": exchange.durable,
        "auto_delete": exchange.auto_delete,
        "internal": exchange.internal,
        "arguments": table_to_json(exchange.arguments),
    }


def _binding(vhost: VirtualHost, binding: Binding) -> dict[str, Any]:
    identity = binding.identity
    return {
        "source": identity.source,
        "vhost": vhost.name,
        "destination": identity.destination,
        "destination_type": identity.destination_type,
        "routing_key": binding.routing_key,
        "arguments": table_to_json(binding.arguments),
    }


log = logging.getLogger("leveret.definitions")

#: Restores one definition from its key and value.
_Restore: TypeAlias = Callable[[Key, dict[str, Any]], None]


def restore(broker: Broker, database: DefinitionsDatabase) -> None:
    """Restore virtual hosts, policies, exchanges, queues, bindings and parameters from the database."""
    _Restorer(broker, database).run()


class _Restorer:
    def __init__(self, broker: Broker, database: DefinitionsDatabase) -> None:
        self._broker = broker
        self._database = database

    def run(self) -> None:
        """Restore all definitions in the order of their dependencies."""
        self._restore_all("global_parameter", self._global_parameter)
        self._restore_all("vhost", self._vhost)
        for kind in ("policy", "operator_policy"):
            self._restore_all(kind, self._policy_of(operator=kind == "operator_policy"))
        self._restore_all("parameter", self._parameter)
        with ExitStack() as stack:
            # A queue above its limit drops messages at once, but their destinations may not be restored yet.
            for vhost in self._broker.vhosts.values():
                stack.enter_context(vhost.dead_letters.paused())
            self._restore_all("exchange", self._exchange)
            self._restore_all("queue", self._queue)
            self._restore_all("binding", self._binding)

    def _restore_all(self, kind: str, restore_one: _Restore) -> None:
        for row in self._database.rows(kind):
            try:
                restore_one(*row.read())
            except Exception as error:  # noqa: BLE001 - one broken definition must not prevent the restore of all others
                self._skip(row, reason_of(error))

    def _skip(self, row: Row, reason: str) -> None:
        log.error("%s could not be restored: %s; it stays on disk until it is deleted", _name_of(row), reason)
        stores = self._broker.stores
        try:
            key = row.read_key()
        except ValueError:
            key = ()
        if row.kind in ("queue", "exchange"):
            if len(key) == 2:
                stores.keep_unrestored(key[0], key[1], _qid_of(row), row.kind)
            else:
                # It is unknown which messages belong to it.
                stores.keep_all_unclaimed()
        if row.kind == "vhost" and len(key) == 1:
            # Its contents are restored even if its metadata is lost.
            self._broker.add_vhost(key[0])
        if key and row.kind != "global_parameter":
            self._broker.note_unrestored(row.kind, key, reason)

    def _global_parameter(self, key: Key, kept: dict[str, Any]) -> None:
        (name,) = key
        self._broker.global_parameters.set(name, kept["value"])

    def _parameter(self, key: Key, kept: dict[str, Any]) -> None:
        vhost_name, component, name = key
        self._broker.parameters.set(self._vhost_of(vhost_name).name, component, name, kept["value"])

    def _vhost(self, key: Key, kept: dict[str, Any]) -> None:
        (name,) = key
        vhost = self._broker.add_vhost(name)
        vhost.set_limits(kept["max_connections"], kept["max_queues"])
        # Earlier versions did not store has_limits.
        vhost.has_limits = kept.get("has_limits", bool(vhost_limits(vhost)))
        self._broker.set_metadata(vhost, metadata_from_json(kept.get("metadata", {})))

    def _policy_of(self, operator: bool) -> _Restore:
        def restore_one(key: Key, kept: dict[str, Any]) -> None:
            vhost_name, name = key
            self._vhost_of(vhost_name).policies.set(read_policy(name, kept, operator, takes_unlimited=True), operator)

        return restore_one

    def _exchange(self, key: Key, kept: dict[str, Any]) -> None:
        vhost_name, name = key
        flags = True, kept["auto_delete"], kept["internal"]
        arguments = table_from_text(kept["arguments"])
        vhost, qid, values_qid = self._vhost_of(vhost_name), kept.get("qid"), kept.get("values_qid")
        vhost.declare_exchange(name, kept["type"], *flags, arguments, qid, values_qid)
        exchange = vhost.topology.exchanges[name]
        if values_qid_of(exchange) != values_qid:
            # The saved number was outdated, or another policy is in force.
            kept = {**kept, "values_qid": values_qid_of(exchange)}
            self._database.put("exchange", key, kept)
        if isinstance(exchange, DelayedExchange) and exchange.waiting is not None:
            found = exchange.waiting.backing.qid
            if found != qid:
                # The saved number was outdated.
                self._database.put("exchange", key, {**kept, "qid": found})

    def _queue(self, key: Key, kept: dict[str, Any]) -> None:
        vhost_name, name = key
        arguments = table_from_text(kept["arguments"])
        declaration = QueueDeclaration(
            name, True, kept["auto_delete"], None, arguments, release=kept.get("release", DEFAULT_RELEASE)
        )
        vhost, qid = self._vhost_of(vhost_name), kept.get("qid")
        vhost.restore_queue(declaration, qid)
        found = vhost.queues[name].backing.qid
        if found != qid:
            # The saved queue number was outdated.
            self._database.put("queue", key, {**kept, "qid": found})

    def _binding(self, key: Key, kept: dict[str, Any]) -> None:
        vhost_name, source, destination_type, destination, routing_key, arguments_text = key
        vhost = self._vhost_of(vhost_name)
        to_queue = destination_type == "queue"
        end = vhost.queue(destination, None) if to_queue else vhost.topology.exchange(destination)
        arguments = table_from_text(arguments_text)
        vhost.topology.bind(vhost.topology.exchange(source), end, routing_key, arguments)

    def _vhost_of(self, name: str) -> VirtualHost:
        vhost = self._broker.vhosts.get(name)
        if vhost is None:
            raise ValueError(f"there is no vhost '{name}'")
        return vhost


def reason_of(error: Exception) -> str:
    """Return why a definition could not be restored, in one line."""
    if isinstance(error, AmqpFault):
        text = error.explanation
    elif isinstance(error, KeyError):
        text = f"it has no {error}"
    elif isinstance(error, ValueError):
        text = str(error)
    else:
        text = f"{type(error).__name__}: {error}"
    return " ".join(text.split())


def _name_of(row: Row) -> str:
    """Describe a row for the log."""
    kind = row.kind.replace("_", " ")
    try:
        key = row.read_key()
    except ValueError:
        return f"{kind} {row.key!r}"
    if row.kind == "binding" and len(key) == 6:
        vhost, source, destination_type, destination, routing_key, _ = key
        return f"binding from '{source}' to {destination_type} '{destination}' by '{routing_key}' in vhost '{vhost}'"
    return f"{kind} '{key[0]}'" if len(key) == 1 else f"{kind} '{key[-1]}' in vhost '{key[0]}'"


def _qid_of(row: Row) -> int | None:
    """Return the queue number on disk; None if it cannot be read."""
    try:
        _, kept = row.read()
        qid = kept.get("qid")
    except ValueError:
        return None
    return qid if isinstance(qid, int) else None
