"""Loading virtual hosts, exchanges, queues and bindings from a RabbitMQ definitions document.

Source: https://www.rabbitmq.com/docs/definitions
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from broker.config.errors import DefinitionsError
from broker.core.broker import Broker
from broker.core.durable import table_from_text
from broker.core.queues.declaration import QueueDeclaration
from broker.core.vhost import VirtualHost
from policies.policy import PolicyError, read_policy
from protocol.faults import AmqpFault
from protocol.field_table import FieldTable, FieldValue, longstr
from storage.definitions import DefinitionsDatabase


def load_vhosts(broker: Broker, document: Mapping[str, Any]) -> None:
    """Make the virtual hosts of a document, with their limits.

    Raises:
        DefinitionsError: An entry is malformed.
    """
    for entry in _entries(document, "vhosts"):
        broker.add_vhost(_text(entry, "name", "vhosts"))
    for entry in _entries(document, "parameters"):
        if entry.get("component") == "vhost-limits":
            vhost = _vhost(broker, entry, "parameters")
            _set_limits(vhost, entry.get("value"))
            broker.save_vhost(vhost)


def load_topology(broker: Broker, document: Mapping[str, Any]) -> None:
    """Declare the exchanges, queues and bindings of a document.

    Raises:
        DefinitionsError: An entry is malformed, or what it declares cannot be had.
    """
    for section, declare in (
        ("exchanges", _declare_exchange),
        ("queues", _declare_queue),
        ("bindings", _declare_binding),
    ):
        for entry in _entries(document, section):
            vhost = _vhost(broker, entry, section)
            try:
                declare(vhost, entry)
            except AmqpFault as fault:
                raise DefinitionsError(f"{section}: {dict(entry)}: {fault.explanation}") from None


def load_policies(broker: Broker, document: Mapping[str, Any]) -> None:
    """Set the policies and operator policies of a document.

    Operator policies stand among the parameters, as RabbitMQ exports them.

    Raises:
        DefinitionsError: An entry is malformed, or its policy is not valid.
    """
    for entry in _entries(document, "policies"):
        _set_policy(broker, entry, entry, "policies", operator=False)
    for entry in _entries(document, "parameters"):
        if entry.get("component") == "operator_policy":
            value = entry.get("value")
            if not isinstance(value, Mapping):
                raise DefinitionsError(f"parameters: {dict(entry)}: 'value' must be an object")
            _set_policy(broker, entry, value, "parameters", operator=True)


def _set_policy(
    broker: Broker, entry: Mapping[str, Any], value: Mapping[str, Any], section: str, operator: bool
) -> None:
    name = _text(entry, "name", section)
    try:
        policy = read_policy(name, value, operator)
    except PolicyError as error:
        reason = " ".join(str(error).split())
        raise DefinitionsError(f"{section}: policy '{name}': {reason}") from None
    _vhost(broker, entry, section).policies.set(policy, operator)


def restore(broker: Broker, database: DefinitionsDatabase) -> None:
    """Make again what an earlier run has kept: virtual hosts, policies, exchanges, queues, bindings."""
    for (name,), limits in database.load("vhost"):
        vhost = broker.add_vhost(name)
        vhost.max_connections, vhost.max_queues = limits["max_connections"], limits["max_queues"]
    for kind in ("policy", "operator_policy"):
        for (vhost_name, name), value in database.load(kind):
            operator = kind == "operator_policy"
            broker.vhosts[vhost_name].policies.set(read_policy(name, value, operator), operator)
    for (vhost_name, name), value in database.load("exchange"):
        arguments = table_from_text(value["arguments"])
        flags = True, value["auto_delete"], value["internal"]
        broker.vhosts[vhost_name].declare_exchange(name, value["type"], *flags, arguments)
    for (vhost_name, name), value in database.load("queue"):
        arguments = table_from_text(value["arguments"])
        declaration = QueueDeclaration(name, True, value["auto_delete"], None, None, arguments)
        broker.vhosts[vhost_name].restore_queue(declaration)
    for (vhost_name, source, destination_type, destination, key, arguments_text), _ in database.load("binding"):
        vhost = broker.vhosts[vhost_name]
        to_queue = destination_type == "queue"
        end = vhost.queues[destination] if to_queue else vhost.topology.exchanges[destination]
        vhost.topology.bind(vhost.topology.exchanges[source], end, key, table_from_text(arguments_text))


def table_from_json(arguments: Mapping[str, Any]) -> FieldTable:
    """Arguments written as JSON, typed as RabbitMQ types them: integers are long, fractions double."""
    return tuple((key, _field(value)) for key, value in arguments.items())


def _field(value: Any) -> FieldValue:
    if isinstance(value, bool):
        return FieldValue("t", value)
    if isinstance(value, int):
        return FieldValue("l", value)
    if isinstance(value, float):
        return FieldValue("d", value)
    if isinstance(value, str):
        return longstr(value)
    if isinstance(value, Mapping):
        return FieldValue("F", table_from_json(value))
    if isinstance(value, list):
        return FieldValue("A", tuple(map(_field, value)))
    return FieldValue("V", None)


def _entries(document: Mapping[str, Any], section: str) -> Iterator[Mapping[str, Any]]:
    entries = document.get(section, [])
    if not isinstance(entries, list | tuple):
        raise DefinitionsError(f"{section}: must be a list, is {type(entries).__name__}")
    for entry in entries:
        if not isinstance(entry, Mapping):
            raise DefinitionsError(f"{section}: every entry must be an object, {entry!r} is not")
        yield entry


def _text(entry: Mapping[str, Any], key: str, section: str) -> str:
    value = entry.get(key)
    if not isinstance(value, str):
        raise DefinitionsError(f"{section}: {dict(entry)}: '{key}' must be a string")
    return value


def _vhost(broker: Broker, entry: Mapping[str, Any], section: str) -> VirtualHost:
    name = _text(entry, "vhost", section)
    vhost = broker.vhosts.get(name)
    if vhost is None:
        raise DefinitionsError(f"{section}: {dict(entry)}: there is no vhost '{name}'")
    return vhost


def _set_limits(vhost: VirtualHost, limits: Any) -> None:
    if not isinstance(limits, Mapping):
        raise DefinitionsError(f"parameters: limits of vhost '{vhost.name}' must be an object")
    for key, value in limits.items():
        if key not in ("max-connections", "max-queues") or not isinstance(value, int) or isinstance(value, bool):
            raise DefinitionsError(
                f"parameters: limits of vhost '{vhost.name}': {key}={value!r}: must be max-connections or"
                " max-queues and an integer"
            )
        # A negative limit is no limit.
        setattr(vhost, key.replace("-", "_"), value if value >= 0 else None)


def _arguments(entry: Mapping[str, Any]) -> FieldTable:
    arguments = entry.get("arguments") or {}
    if not isinstance(arguments, Mapping):
        raise DefinitionsError(f"{dict(entry)}: 'arguments' must be an object")
    return table_from_json(arguments)


def _declare_exchange(vhost: VirtualHost, entry: Mapping[str, Any]) -> None:
    type_name = _text(entry, "type", "exchanges")
    vhost.topology.check_exchange_type(type_name)
    vhost.declare_exchange(
        _text(entry, "name", "exchanges"),
        type_name,
        bool(entry.get("durable", True)),
        bool(entry.get("auto_delete", False)),
        bool(entry.get("internal", False)),
        _arguments(entry),
    )


def _declare_queue(vhost: VirtualHost, entry: Mapping[str, Any]) -> None:
    declaration = QueueDeclaration(
        _text(entry, "name", "queues"),
        bool(entry.get("durable", True)),
        bool(entry.get("auto_delete", False)),
        None,
        None,
        _arguments(entry),
    )
    vhost.declare_queue(declaration, lambda _: None)


def _declare_binding(vhost: VirtualHost, entry: Mapping[str, Any]) -> None:
    source = vhost.topology.exchange(_text(entry, "source", "bindings"))
    name = _text(entry, "destination", "bindings")
    to_queue = entry.get("destination_type", "queue") == "queue"
    destination = vhost.queue(name, None) if to_queue else vhost.topology.exchange(name)
    key = _text(entry, "routing_key", "bindings")
    vhost.topology.bind(source, destination, key, _arguments(entry))
