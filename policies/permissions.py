"""What a user may do: patterns on the names of resources, and on routing keys of topic exchanges.

Source: https://www.rabbitmq.com/docs/access-control#authorisation
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from leveret.policies.invalid_pattern import InvalidPattern
from leveret.policies.patterns import Pattern

Kind: TypeAlias = Literal["configure", "write", "read"]
TopicKind: TypeAlias = Literal["write", "read"]

#: The name by which permissions know the default exchange.
DEFAULT_EXCHANGE: Final = "amq.default"


def compile_permission(source: str) -> Pattern:
    """Compile one pattern of a permission; the empty one matches only nothing.

    Raises:
        InvalidPattern: It is not a regular expression.
    """
    # RabbitMQ reads "" so; as a regular expression it would match everything.
    return Pattern(source or "^$")


@dataclass(frozen=True, slots=True)
class Permissions:
    """What one user may do in one virtual host.

    Args:
        configure: Regular expression of the names it may declare and delete.
        write: Of those it may publish to and bind to.
        read: Of those it may consume from and bind from.
    Raises:
        InvalidPattern: One of them cannot be compiled; the text says which.
    """

    configure: str
    write: str
    read: str
    _patterns: dict[str, Pattern] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        kinds: tuple[Kind, ...] = ("configure", "write", "read")
        for kind in kinds:
            self._patterns[kind] = _compile(kind, getattr(self, kind))

    def allow(self, kind: Kind, name: str) -> bool:
        """Whether a pattern matches the name of a queue or exchange.

        Args:
            kind: Which of the three.
            name: "" is the default exchange, matched as ``amq.default``.
        """
        return self._patterns[kind].matches(name or DEFAULT_EXCHANGE)


@dataclass(frozen=True, slots=True)
class TopicPermissions:
    """Which routing keys one user may use on one topic exchange.

    Args:
        write: Regular expression of the keys it may publish with, ``{username}`` and ``{vhost}`` not yet
            replaced.
        read: Of those it may bind with.
        username: What stands for ``{username}``. As in RabbitMQ it goes in unescaped: a dot in it matches
            any character.
        vhost: What stands for ``{vhost}``, likewise.
    Raises:
        InvalidPattern: One of them cannot be compiled, before or after the replacement.
    """

    write: str
    read: str
    username: str
    vhost: str
    _patterns: dict[str, Pattern] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        kinds: tuple[TopicKind, ...] = ("write", "read")
        for kind in kinds:
            source: str = getattr(self, kind)
            _compile(kind, source)
            self._patterns[kind] = _compile(kind, self._expand(source))

    def allow(self, kind: TopicKind, routing_key: str) -> bool:
        """Whether a pattern matches a routing key."""
        return self._patterns[kind].matches(routing_key)

    def _expand(self, source: str) -> str:
        return source.replace("{username}", self.username).replace("{vhost}", self.vhost)


def _compile(kind: str, source: str) -> Pattern:
    try:
        return compile_permission(source)
    except InvalidPattern as invalid:
        raise invalid.within(kind) from None
