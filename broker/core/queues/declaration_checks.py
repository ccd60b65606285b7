"""Validation of queue.declare: names, arguments, and equivalence with an existing queue."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from leveret.broker.core.queues.queue import Queue, QueueDeclaration
from leveret.broker.core.terms import check_equal, check_flag
from leveret.policies.policy_keys import (
    DEFAULT_STREAM_SEGMENT_BYTES,
    MAX_STREAM_SEGMENT_BYTES,
    argument_error,
    compared_arguments,
    known_arguments,
    queue_type_error,
    unsupported_argument,
)
from leveret.protocol.faults import access_refused, precondition_failed, resource_locked
from leveret.protocol.field_table import TYPE_NAMES, FieldTable, FieldValue, as_text, find
from leveret.storage.stores.priority_store import RETURNS_PRIORITY_MAX

#: Arguments for which returned messages are kept apart.
_OF_RETURNS: Final = frozenset(("x-redelivery-limit", "x-delayed-retry-min", "x-delayed-retry-steps"))
#: Arguments that a type ignores, where other releases refuse them.
_IGNORED: Final = {("quorum", "4.3"): "x-max-priority"}
_SEGMENT_SIZE: Final = "x-stream-max-segment-size-bytes"
_FILTER_SIZE: Final = "x-stream-filter-size-bytes"
_FILTER_SIZE_MIN: Final = 16
_FILTER_SIZE_MAX: Final = 255


def check_unreserved(name: str) -> None:
    """Refuse reserved names, which only the broker assigns.

    Raises:
        ChannelFault: ACCESS_REFUSED (403).
    """
    if name.startswith("amq."):
        raise access_refused(f"queue name '{name}' contains reserved prefix 'amq.*'")


def check_not_locked(queue: Queue, owner: object | None) -> None:
    """Refuse access to a queue that is exclusive to another connection.

    Args:
        owner: The object that identifies the requesting connection; None over HTTP.
    Raises:
        ChannelFault: RESOURCE_LOCKED (405).
    """
    if queue.owner is not None and queue.owner is not owner:
        raise _locked(queue)


def check_exclusive_use(queue: Queue, exclusive: bool) -> None:
    """Refuse a consumer if the queue has an exclusive one, or an exclusive consumer if the queue has any.

    Raises:
        ChannelFault: ACCESS_REFUSED (403).
    """
    if not queue.traits.supports_exclusive_consumers:
        return
    group = queue.consumers
    if group.exclusive or (exclusive and (len(group) or group.single_active)):
        raise access_refused(f"queue '{queue.name}' in vhost '{queue.vhost_name}' in exclusive use")


def check_equivalent(queue: Queue, declaration: QueueDeclaration) -> None:
    """Refuse a declaration that differs from the existing queue.

    Raises:
        ChannelFault: RESOURCE_LOCKED (405) for exclusivity, PRECONDITION_FAILED (406) for anything else.
    """
    if queue.owner is not declaration.owner:
        raise _locked(queue)
    if queue.owner is None:
        check_flag("queue", queue.name, queue.vhost_name, "durable", declaration.durable, queue.durable)
    check_flag("queue", queue.name, queue.vhost_name, "auto_delete", declaration.auto_delete, queue.auto_delete)
    for key in compared_arguments(queue.queue_type):
        received, current = find(declaration.arguments, key), find(queue.arguments, key)
        if key == "x-queue-type" and _is_classic(received) and _is_classic(current):
            continue
        check_equal("queue", queue.name, queue.vhost_name, key, received, current)


def _is_classic(queue_type: FieldValue | None) -> bool:
    """Return whether a value of x-queue-type means classic, which is the default."""
    return queue_type is None or queue_type.value == b"classic"


def stream_segment_bytes(arguments: FieldTable) -> int:
    """Return the size of the segments of a stream in bytes, given its arguments."""
    size = find(arguments, _SEGMENT_SIZE)
    return DEFAULT_STREAM_SEGMENT_BYTES if size is None else int(size.value)


def check_arguments(
    declaration: QueueDeclaration, vhost_name: str, check_dead_letter_exchange: Callable[[str], None]
) -> None:
    """Refuse arguments of a new queue with a wrong type or value.

    Args:
        vhost_name: The name of the virtual host, for error texts.
        check_dead_letter_exchange: Raises if the user may not dead-letter to the exchange with this name.
    Raises:
        ChannelFault: PRECONDITION_FAILED (406).
    """
    where = f"for queue '{declaration.name}' in vhost '{vhost_name}'"
    _check_dead_letter_argument(declaration, vhost_name, check_dead_letter_exchange)
    values: dict[str, tuple[str, object]] = {}
    for key, field in declaration.arguments:
        values.setdefault(key, (TYPE_NAMES[field.kind], field.value))
    _check_queue_type(declaration, where)
    queue_type = declaration.queue_type
    for key in known_arguments(queue_type):
        refusal = argument_error(key, values) if key in values else None
        if refusal is None and key in _OF_RETURNS and key in values:
            refusal = _refuse_many_priorities(declaration)
        if refusal is not None:
            raise precondition_failed(f"invalid arg '{key}' {where}: {refusal}")
    ignored = _IGNORED.get((queue_type, declaration.release))
    unsupported = unsupported_argument(queue_type, (name for name in values if name != ignored))
    if unsupported is not None:
        raise precondition_failed(f"invalid arg '{unsupported}' {where} of queue type rabbit_{queue_type}_queue")
    _check_properties(declaration, queue_type, where)
    size = values.get(_SEGMENT_SIZE)
    if queue_type == "stream" and size is not None and int(str(size[1])) > MAX_STREAM_SEGMENT_BYTES:
        raise precondition_failed(f"Exceeded max value for {_SEGMENT_SIZE}")
    if queue_type == "stream" and not _is_filter_size(values.get(_FILTER_SIZE, ("unsignedbyte", _FILTER_SIZE_MIN))):
        raise precondition_failed(f"Invalid value for {_FILTER_SIZE}")


def _is_filter_size(value: tuple[str, object]) -> bool:
    """Return whether RabbitMQ accepts a value of x-stream-filter-size-bytes. Filters do not depend on it here."""
    return isinstance(value[1], int) and value[0] != "bool" and _FILTER_SIZE_MIN <= value[1] <= _FILTER_SIZE_MAX


def _refuse_many_priorities(declaration: QueueDeclaration) -> str | None:
    """Return why returned messages cannot be kept apart; None if they can."""
    priorities = find(declaration.arguments, "x-max-priority")
    if priorities is None or priorities.value <= RETURNS_PRIORITY_MAX:
        return None
    return f"x-max-priority is above {RETURNS_PRIORITY_MAX}"


def _check_properties(declaration: QueueDeclaration, queue_type: str, where: str) -> None:
    """Refuse properties that the queue type does not support."""
    if queue_type == "classic":
        return
    if declaration.server_named:
        raise precondition_failed(f"Cannot declare a server-named queue for type rabbit_{queue_type}_queue")
    for wrong, name in (
        (declaration.auto_delete, "auto-delete"),
        (declaration.owner is not None, "exclusive-owner"),
        (not declaration.durable, "non-durable"),
    ):
        if wrong:
            raise precondition_failed(f"invalid property '{name}' {where}")


def _check_queue_type(declaration: QueueDeclaration, where: str) -> None:
    field = find(declaration.arguments, "x-queue-type")
    if field is None:
        return
    refusal = queue_type_error(TYPE_NAMES[field.kind], field.value)
    if refusal is not None:
        raise precondition_failed(f"invalid arg 'x-queue-type' {where}: {refusal}")


def _check_dead_letter_argument(declaration: QueueDeclaration, vhost_name: str, check: Callable[[str], None]) -> None:
    field = find(declaration.arguments, "x-dead-letter-exchange")
    if field is None:
        return
    if field.kind != "S":
        raise precondition_failed(
            f"invalid type '{TYPE_NAMES[field.kind]}' for arg 'x-dead-letter-exchange'"
            f" in queue '{declaration.name}' in vhost '{vhost_name}'"
        )
    check(as_text(field))


def _locked(queue: Queue) -> Exception:
    return resource_locked(
        f"cannot obtain exclusive access to locked queue '{queue.name}' in vhost '{queue.vhost_name}'."
        " It could be originally declared on another connection or the exclusive property value does not match"
        " that of the original declaration."
    )
