"""Shovels: the parameters of component ``shovel``, and the checks of their values, with RabbitMQ's texts.

Source: https://www.rabbitmq.com/docs/shovel-dynamic, and RabbitMQ 3.10.8 observed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from leveret.policies.amqp_uri import AmqpUri, InvalidUri, parse_uri, without_credentials
from leveret.protocol.erlang_terms import format_json, format_list, format_string, format_tuple

#: The component of its parameters.
COMPONENT: Final = "shovel"

AckMode: TypeAlias = Literal["on-confirm", "on-publish", "no-ack"]
#: When a shovel removes itself: after a number of messages, or those that were in the queue when it began.
DeleteAfter: TypeAlias = int | Literal["never", "queue-length"]
#: Checks a value; yields what is wrong. The first argument is its key.
_Check: TypeAlias = Callable[[str, Any], Iterator[str]]

_PREFETCH: Final = 1000
_RECONNECT_SECONDS: Final = 5
_ACK_MODES: Final = ("no-ack", "on-publish", "on-confirm")
_PROTOCOL: Final = "amqp091"


class InvalidShovel(ValueError):
    """The value of a parameter is refused; the text has a line for each reason."""


@dataclass(frozen=True, slots=True)
class ShovelEnd:
    """Where the messages of a shovel come from, or go to.

    Attributes:
        uris: The brokers; one of them is chosen at random each time.
        queue: Name of the queue; None for none.
        exchange: Name of the exchange; None for none.
        key: Binding key at the source, routing key at the destination; None for none.
        arguments: Arguments with which the queue is declared if it does not exist.
        predeclared: Whether the queue must exist.
    """

    uris: tuple[AmqpUri, ...]
    queue: str | None
    exchange: str | None
    key: str | None
    arguments: Mapping[str, Any]
    predeclared: bool

    def named(self, prefix: str, separator: str) -> dict[str, str]:
        """Return its queue, exchange and key, as far as it has them, by names that begin with a prefix."""
        values = {"queue": self.queue, "exchange": self.exchange, f"exchange{separator}key": self.key}
        return {f"{prefix}{separator}{name}": value for name, value in values.items() if value}


@dataclass(frozen=True, slots=True)
class Shovel:
    """What a shovel does.

    Attributes:
        consumer_arguments: Arguments of its consumer.
        prefetch: Messages that are on their way at most; 0 for no limit of its own.
        reconnect_seconds: Pause after a failure; 0 for no further attempt.
        properties: Properties that replace those of messages, by name.
        adds_forward_headers: Whether the header ``x-shovelled`` says which way messages have come.
        adds_timestamp: Whether the header ``x-shovelled-timestamp`` says when.
    """

    source: ShovelEnd
    destination: ShovelEnd
    consumer_arguments: Mapping[str, Any]
    prefetch: int
    ack_mode: AckMode
    delete_after: DeleteAfter
    reconnect_seconds: float
    properties: Mapping[str, Any]
    adds_forward_headers: bool
    adds_timestamp: bool


def read_shovel(name: str, value: Any) -> Shovel:
    """Return the shovel that the value of a parameter describes.

    Args:
        name: Name of the parameter, for the error text.
    Raises:
        InvalidShovel: The value is refused.
    """
    # RabbitMQ also takes an empty list for an object.
    value = {} if value == [] else value
    if not isinstance(value, Mapping):
        raise InvalidShovel(f"{name} not a list {format_json(value)}\n")
    problems = [*_problems(name, value)]
    if problems:
        raise InvalidShovel("".join(f"{each}\n" for each in problems))
    return _read(value)


def _read(value: Mapping[str, Any]) -> Shovel:
    # Both names of a key were in use; the longer one came later, and precedes.
    def get(name: str, default: Any) -> Any:
        return value.get(f"src-{name}", value.get(f"dest-{name}", value.get(name, default)))

    return Shovel(
        _read_end("src", value),
        _read_end("dest", value),
        _table(value.get("src-consumer-args")),
        max(0, int(get("prefetch-count", _PREFETCH))),
        value.get("ack-mode", "on-confirm"),
        get("delete-after", "never"),
        max(0, value.get("reconnect-delay", _RECONNECT_SECONDS)),
        _table(get("publish-properties", {})),
        get("add-forward-headers", False),
        get("add-timestamp-header", False),
    )


def _read_end(prefix: str, value: Mapping[str, Any]) -> ShovelEnd:
    uris = value[f"{prefix}-uri"]
    queue, exchange, key = (value.get(f"{prefix}-{name}") for name in ("queue", "exchange", "exchange-key"))
    return ShovelEnd(
        tuple(map(parse_uri, [uris] if isinstance(uris, str) else uris)),
        queue,
        exchange,
        key,
        _table(value.get(f"{prefix}-queue-args")),
        value.get(f"{prefix}-predeclared", False),
    )


def _table(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


# -- checks -----------------------------------------------------------------------------------------------


def _problems(name: str, value: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is wrong with a value, in RabbitMQ's order."""
    sources = [key for key in ("src-exchange", "src-queue") if key in value]
    if not sources:
        yield "Must specify 'src-exchange' or 'src-queue'"
    elif len(sources) > 1:
        yield "Cannot specify 'src-exchange' and 'src-queue'"
    after = value.get("src-delete-after", value.get("delete-after"))
    if isinstance(after, int) and not isinstance(after, bool) and value.get("ack-mode") == "no-ack":
        yield "Cannot specify 'no-ack' and numerical 'delete-after'"
    if "dest-exchange" in value and "dest-queue" in value:
        yield "Cannot specify 'dest-exchange' and 'dest-queue'"
    yield from _check_keys(name, value, _CHECKS, ("dest-uri", "src-uri"))


def _check_keys(
    name: str, value: Mapping[str, Any], checks: Mapping[str, _Check], required: tuple[str, ...] = ()
) -> Iterator[str]:
    unknown = [
        format_tuple(format_json(key), format_json(each)) for key, each in sorted(value.items()) if key not in checks
    ]
    if unknown:
        yield f"Unrecognised terms {format_list(unknown)} in {name}"
    # RabbitMQ reports the last key first.
    for key in reversed(tuple(checks)):
        if key in value:
            yield from checks[key](key, value[key])
        elif key in required:
            yield f'Key "{key}" not found in {name}'


def _check_uris(key: str, value: Any) -> Iterator[str]:
    uris = [value] if isinstance(value, str) else value
    if not isinstance(uris, list):
        yield f"{key} should be list, actually was {format_json(value)}"
        return
    if not uris:
        # RabbitMQ takes it, and the shovel never starts.
        yield f"{key} should be one URI or more, actually was []"
    for uri in uris:
        if not isinstance(uri, str):
            yield f"{key} should be list, actually was {format_json(uri)}"
            continue
        try:
            parse_uri(uri)
        except InvalidUri as invalid:
            yield f"{format_string(without_credentials(uri))} not a valid URI: {invalid}"


def _check_text(key: str, value: Any) -> Iterator[str]:
    if not isinstance(value, str):
        yield f"{key} should be binary, actually was {format_json(value)}"


def _check_number(key: str, value: Any) -> Iterator[str]:
    if isinstance(value, bool) or not isinstance(value, int | float):
        yield f"{key} should be a number, actually was {format_json(value)}"


def _check_flag(key: str, value: Any) -> Iterator[str]:
    if not isinstance(value, bool):
        yield f"{key} should be boolean, actually was {format_json(value)}"


def _check_table(key: str, value: Any) -> Iterator[str]:
    # RabbitMQ answers 500.
    if value != [] and not isinstance(value, Mapping):
        yield f"{key} not a list {format_json(value)}"


def _check_delete_after(key: str, value: Any) -> Iterator[str]:
    if value in ("never", "queue-length") or (isinstance(value, int) and not isinstance(value, bool) and value >= 0):
        return
    yield (
        f'{key} should be a number greater than or equal to 0, "never" or "queue-length", actually was'
        f" {format_json(value)}"
    )


def _check_ack_mode(key: str, value: Any) -> Iterator[str]:
    yield from _check_one_of(key, value, _ACK_MODES)


def _check_protocol(key: str, value: Any) -> Iterator[str]:
    yield from _check_one_of(key, value, (_PROTOCOL,))


def _check_one_of(key: str, value: Any, choices: tuple[str, ...]) -> Iterator[str]:
    if not isinstance(value, str):
        yield from _check_text(key, value)
    elif value not in choices:
        yield f"{key} should be one of {format_json(choices)}, actually was {format_json(value)}"


def _check_properties(key: str, value: Any) -> Iterator[str]:
    yield from _check_table(key, value)
    yield from _check_keys(key, _table(value), _PROPERTIES)


_PROPERTIES: Final[Mapping[str, _Check]] = {
    "content_type": _check_text,
    "content_encoding": _check_text,
    "delivery_mode": _check_number,
    "priority": _check_number,
    "correlation_id": _check_text,
    "reply_to": _check_text,
    "expiration": _check_text,
    "message_id": _check_text,
    "timestamp": _check_number,
    "type": _check_text,
    "user_id": _check_text,
    "app_id": _check_text,
    "cluster_id": _check_text,
}
#: In RabbitMQ's order. The keys with "predeclared" are of newer releases.
_CHECKS: Final[Mapping[str, _Check]] = {
    "reconnect-delay": _check_number,
    "ack-mode": _check_ack_mode,
    "src-protocol": _check_protocol,
    "dest-protocol": _check_protocol,
    "src-uri": _check_uris,
    "src-exchange": _check_text,
    "src-exchange-key": _check_text,
    "src-queue": _check_text,
    "src-queue-args": _check_table,
    "src-consumer-args": _check_table,
    "prefetch-count": _check_number,
    "src-prefetch-count": _check_number,
    "delete-after": _check_delete_after,
    "src-delete-after": _check_delete_after,
    "src-predeclared": _check_flag,
    "dest-uri": _check_uris,
    "dest-exchange": _check_text,
    "dest-exchange-key": _check_text,
    "dest-queue": _check_text,
    "dest-queue-args": _check_table,
    "add-forward-headers": _check_flag,
    "add-timestamp-header": _check_flag,
    "dest-add-forward-headers": _check_flag,
    "dest-add-timestamp-header": _check_flag,
    "publish-properties": _check_properties,
    "dest-publish-properties": _check_properties,
    "dest-predeclared": _check_flag,
}
