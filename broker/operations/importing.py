"""Imports virtual hosts, policies, exchanges, queues and bindings from a RabbitMQ definitions document.

What Leveret does not have is left out, and named in a list of texts: parameters of other components, policy keys of
newer releases and plugins, and bindings of what does not exist.

Source: https://www.rabbitmq.com/docs/definitions
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeAlias

from leveret.broker.config.config_errors import DefinitionsError
from leveret.broker.core.broker import Broker
from leveret.broker.core.exchanges.types import check_exchange_type
from leveret.broker.core.json_values import check_nesting, table_from_json
from leveret.broker.core.queues.queue import QueueDeclaration
from leveret.broker.core.vhosts.metadata import InvalidMetadata, VirtualHostMetadata, read_metadata
from leveret.broker.core.vhosts.vhost import VirtualHost
from leveret.broker.operations.body_rules import set_body_rule
from leveret.broker.operations.exchanges import Ends, add_binding, find_destination
from leveret.broker.operations.virtual_hosts import (
    InvalidLimits,
    escape_markup,
    policy_error_text,
    set_limits,
    set_policy,
    set_shovel,
    takes_unlimited,
)
from leveret.policies.policy import PolicyError, is_from_elsewhere, read_policy
from leveret.policies.shovel import COMPONENT as SHOVEL
from leveret.policies.shovel import InvalidShovel
from leveret.protocol.constants import SHORTSTR_MAX
from leveret.protocol.faults import AmqpFault, ReplyCode
from leveret.protocol.field_table import FieldTable, find, longstr
from leveret.storage.readers.body_rules import COMPONENT as BODIES
from leveret.storage.readers.body_rules import InvalidRule

#: Declares an entry of a document; may return steps that are left to do.
_Declare: TypeAlias = Callable[[VirtualHost, Mapping[str, Any]], Iterator[None] | None]

#: Components in the section "parameters" that are loaded: by policy_steps(), load_vhosts() and load_components().
_COMPONENTS: Final = ("operator_policy", "vhost-limits", SHOVEL, BODIES)


def find_left_out(document: Mapping[str, Any]) -> list[str]:
    """Return the parameters of components that are not loaded, and the shovels that speak AMQP 1.0.

    Raises:
        DefinitionsError: An entry is malformed.
    """
    return [
        f"parameters: '{entry.get('name')}' of component '{entry.get('component')}' in vhost '{entry.get('vhost')}'"
        for entry in _entries(document, "parameters")
        if entry.get("component") not in _COMPONENTS or _is_amqp_1(entry)
    ]


def _is_amqp_1(entry: Mapping[str, Any]) -> bool:
    value = entry.get("value")
    protocols = [value.get(f"{end}-protocol") for end in ("src", "dest")] if isinstance(value, Mapping) else []
    return entry.get("component") == SHOVEL and "amqp10" in protocols


def load_vhosts(broker: Broker, document: Mapping[str, Any]) -> None:
    """Create the virtual hosts of a document, and set metadata and limits of new and existing ones.

    Raises:
        DefinitionsError: An entry is malformed.
    """
    for entry in _entries(document, "vhosts"):
        _load_vhost(broker, _text(entry, "name", "vhosts"), entry)
    for entry in _entries(document, "parameters"):
        if entry.get("component") == "vhost-limits":
            _set_limits(broker, _vhost(broker, entry, "parameters"), entry.get("value"))


def _load_vhost(broker: Broker, name: str, entry: Mapping[str, Any]) -> None:
    # A document may only name a virtual host: then an existing one keeps its metadata.
    known = broker.vhosts.get(name)
    if known is None or len(entry) > 1:
        try:
            metadata = read_metadata(entry, VirtualHostMetadata() if known is None else known.metadata)
        except InvalidMetadata as invalid:
            raise DefinitionsError(f"vhosts: '{name}': {invalid.reason}", invalid.reason) from None
        broker.put_vhost(name, metadata)


def load_global_parameters(broker: Broker, document: Mapping[str, Any]) -> None:
    """Set the global parameters of a document.

    Raises:
        DefinitionsError: An entry is malformed.
    """
    for entry in _entries(document, "global_parameters"):
        name, value = _text(entry, "name", "global_parameters"), entry.get("value")
        try:
            check_nesting(value)
        except ValueError as deep:
            raise DefinitionsError(f"global_parameters: '{name}': {deep}") from None
        broker.global_parameters.set(name, value)


def topology_steps(broker: Broker, document: Mapping[str, Any], left_out: list[str]) -> Iterator[None]:
    """Declare the exchanges, queues and bindings of a document, one per step.

    Existing exchanges and queues are not changed, even if they differ from the document.

    Args:
        broker: Where to declare them.
        document: A definitions document as RabbitMQ exports it.
        left_out: Bindings of missing virtual hosts, exchanges or queues are added to it, which RabbitMQ skips, too.
    Raises:
        DefinitionsError: An entry is malformed, or its declaration is refused.
    """
    sections: tuple[tuple[str, _Declare], ...] = (
        ("exchanges", _declare_exchange),
        ("queues", _declare_queue),
        ("bindings", _declare_binding),
    )
    for section, declare in sections:
        may_dangle = section == "bindings"
        for entry in _entries(document, section):
            if may_dangle and entry.get("vhost") not in broker.vhosts:
                left_out.append(_describe_binding(entry))
                continue
            vhost = _vhost(broker, entry, section)
            try:
                yield from declare(vhost, entry) or ()
            except AmqpFault as fault:
                if may_dangle and fault.code is ReplyCode.NOT_FOUND:
                    left_out.append(_describe_binding(entry))
                    continue
                text = f"{section}: {_shown(entry)}: {fault.explanation}"
                raise DefinitionsError(text, fault.explanation) from None
            yield


def policy_steps(broker: Broker, document: Mapping[str, Any], left_out: list[str]) -> Iterator[None]:
    """Set and apply the policies and operator policies of a document, one queue or exchange per step.

    Operator policies are in the section parameters, as RabbitMQ exports them.

    Args:
        broker: Where to set them.
        document: A definitions document as RabbitMQ exports it.
        left_out: Keys of newer releases and of plugins are added to it.
    Raises:
        DefinitionsError: An entry is malformed, or its policy is not valid.
    """
    for entry in _entries(document, "policies"):
        yield from _set_policy(broker, entry, entry, left_out, operator=False)
    for entry in _entries(document, "parameters"):
        if entry.get("component") == "operator_policy":
            value = entry.get("value")
            if not isinstance(value, Mapping):
                raise DefinitionsError(f"parameters: '{entry.get('name')}': 'value' must be an object")
            yield from _set_policy(broker, entry, value, left_out, operator=True)


def load_components(broker: Broker, document: Mapping[str, Any]) -> None:
    """Set the shovels of a document, which start, but not those that find_left_out() names; and the rules of bodies.

    Raises:
        DefinitionsError: An entry is malformed, or not valid.
    """
    setters = {SHOVEL: set_shovel, BODIES: set_body_rule}
    for entry in _entries(document, "parameters"):
        component = str(entry.get("component"))
        if component not in setters or _is_amqp_1(entry):
            continue
        vhost, name = _vhost(broker, entry, "parameters"), _text(entry, "name", "parameters")
        try:
            setters[component](broker, vhost, name, entry.get("value"))
        except (InvalidShovel, InvalidRule) as invalid:
            text = f"parameters: {component} '{name}': {'; '.join(str(invalid).splitlines())}"
            reason = f"Validation failed\n\n{escape_markup(str(invalid))} ({vhost.name}/{component}/{name})"
            raise DefinitionsError(text, reason) from None


def _set_policy(
    broker: Broker, entry: Mapping[str, Any], value: Mapping[str, Any], left_out: list[str], operator: bool
) -> Iterator[None]:
    section = "parameters" if operator else "policies"
    name = _text(entry, "name", section)
    vhost = _vhost(broker, entry, section)
    definition = value.get("definition")
    if (
        isinstance(definition, list)
        and definition
        and all(isinstance(each, list) and len(each) == 2 for each in definition)
    ):
        # As rabbitmqctl 4.0 exports operator policies.
        definition = {str(key): each for key, each in definition}
        value = {**value, "definition": definition}
    if isinstance(definition, Mapping):
        kept = {key: each for key, each in definition.items() if not is_from_elsewhere(key, operator)}
        if len(kept) < len(definition):
            keys = ", ".join(f"'{key}'" for key in definition if key not in kept)
            left_out.append(f"{section}: {keys} of '{name}' in vhost '{vhost.name}'")
            if not kept:
                return iter(())
            value = {**value, "definition": kept}
    try:
        policy = read_policy(name, value, operator, takes_unlimited=takes_unlimited(vhost))
    except PolicyError as error:
        text = f"{section}: policy '{name}': {' '.join(str(error).split())}"
        where = f"{vhost.name}/operator_policy/{name}" if operator else f"{vhost.name}/{name}"
        raise DefinitionsError(text, f"{policy_error_text(error, operator)} ({where})") from None
    _, steps = set_policy(vhost, policy, operator)
    return steps


def _entries(document: Mapping[str, Any], section: str) -> Iterator[Mapping[str, Any]]:
    entries = document.get(section, [])
    if not isinstance(entries, list | tuple):
        raise DefinitionsError(f"{section}: must be a list, is {type(entries).__name__}")
    for entry in entries:
        if not isinstance(entry, Mapping):
            raise DefinitionsError(f"{section}: every entry must be an object, {entry!r} is not")
        yield entry


def _shown(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return an entry for an error text; the value of a parameter, such as an address, may have a password."""
    return {key: value for key, value in entry.items() if key != "value"}


def _text(entry: Mapping[str, Any], key: str, section: str) -> str:
    value = entry.get(key)
    if not isinstance(value, str):
        raise DefinitionsError(f"{section}: {_shown(entry)}: '{key}' must be a string")
    if len(value.encode()) > SHORTSTR_MAX:
        raise DefinitionsError(f"{section}: '{key}' must have at most {SHORTSTR_MAX} bytes, '{value[:32]}…' has more")
    return value


def _flag(entry: Mapping[str, Any], key: str, section: str, default: bool = False) -> bool:
    value = entry.get(key, default)
    if not isinstance(value, bool):
        raise DefinitionsError(f"{section}: {_shown(entry)}: '{key}' must be true or false", ["not_boolean", value])
    return value


def _vhost(broker: Broker, entry: Mapping[str, Any], section: str) -> VirtualHost:
    name = _text(entry, "vhost", section)
    vhost = broker.vhosts.get(name)
    if vhost is None:
        raise DefinitionsError(f"{section}: {_shown(entry)}: there is no vhost '{name}'", ["no_such_vhost", name])
    return vhost


def _set_limits(broker: Broker, vhost: VirtualHost, limits: Any) -> None:
    # RabbitMQ exports no limits as an empty list.
    limits = limits or {}
    if not isinstance(limits, Mapping):
        raise DefinitionsError(f"parameters: limits of vhost '{vhost.name}' must be an object")
    try:
        set_limits(broker, vhost, limits)
    except InvalidLimits as invalid:
        reason = f"Validation failed\n\n{escape_markup(str(invalid))}\n ({vhost.name}/vhost-limits/limits)"
        raise DefinitionsError(f"parameters: limits of vhost '{vhost.name}': {invalid}", reason) from None


def _arguments(entry: Mapping[str, Any]) -> FieldTable:
    arguments = entry.get("arguments") or {}
    if not isinstance(arguments, Mapping):
        raise DefinitionsError(f"{_shown(entry)}: 'arguments' must be an object")
    try:
        return table_from_json(arguments)
    except ValueError as error:
        raise DefinitionsError(f"{_shown(entry)}: 'arguments': {error}") from None


def _declare_exchange(vhost: VirtualHost, entry: Mapping[str, Any]) -> None:
    name, type_name = _text(entry, "name", "exchanges"), _text(entry, "type", "exchanges")
    if name in vhost.topology.exchanges:
        return
    check_exchange_type(type_name)
    vhost.declare_exchange(
        name,
        type_name,
        _flag(entry, "durable", "exchanges", True),
        _flag(entry, "auto_delete", "exchanges"),
        _flag(entry, "internal", "exchanges"),
        _arguments(entry),
    )


def _declare_queue(vhost: VirtualHost, entry: Mapping[str, Any]) -> None:
    name, arguments, queue_type = _text(entry, "name", "queues"), _arguments(entry), entry.get("type", "classic")
    if name in vhost.queues:
        return
    if queue_type != "classic" and find(arguments, "x-queue-type") is None:
        # Newer releases name the type, too.
        arguments = (*arguments, ("x-queue-type", longstr(_text(entry, "type", "queues"))))
    durable, auto_delete = _flag(entry, "durable", "queues", True), _flag(entry, "auto_delete", "queues")
    # A user who may import definitions may dead-letter to any exchange.
    vhost.declare_queue(QueueDeclaration(name, durable, auto_delete, None, arguments), lambda _: None, is_import=True)


def _describe_binding(entry: Mapping[str, Any]) -> str:
    ends = f"from '{entry.get('source')}' to {entry.get('destination_type', 'queue')} '{entry.get('destination')}'"
    return f"bindings: {ends} in vhost '{entry.get('vhost')}', as one of these does not exist"


def _declare_binding(vhost: VirtualHost, entry: Mapping[str, Any]) -> Iterator[None]:
    source = vhost.topology.exchange(_text(entry, "source", "bindings"))
    to_queue = entry.get("destination_type", "queue") == "queue"
    destination = find_destination(vhost, Ends(source.name, _text(entry, "destination", "bindings"), to_queue))
    # Files by hand omit it for fanout exchanges.
    key = _text(entry, "routing_key", "bindings") if "routing_key" in entry else ""
    return add_binding(vhost, source, destination, key, _arguments(entry)).history
