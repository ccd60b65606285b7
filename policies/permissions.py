"""Permissions of users: patterns for names of resources, and for routing keys of topic exchanges.

Source: https://www.rabbitmq.com/docs/access-control#authorisation
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from leveret.policies.invalid_pattern import InvalidPattern
from leveret.policies.patterns import Pattern

Kind: TypeAlias = Literal["configure", "write", "read"]
TopicKind: TypeAlias = Literal["write", "read"]

#: Name of the default exchange in permissions.
DEFAULT_EXCHANGE: Final = "amq.default"


def compile_permission(source: str) -> Pattern:
    """Compile a pattern of a permission. The empty pattern matches only the empty text.

    Raises:
        InvalidPattern: It is not a regular expression.
    """
    # As in RabbitMQ; as a regular expression "" would match everything.
    return Pattern(source or "^$")


@dataclass(frozen=True, slots=True)
class Permissions:
    """Permissions of a user in a virtual host.

    Args:
        configure: Regular expression for names that the user may declare and delete.
        write: Regular expression for names that the user may publish to and bind to.
        read: Regular expression for names that the user may consume from and bind from.
    Raises:
        InvalidPattern: One of them cannot be compiled; the text says which.
    """

    configure: str
    write: str
    read: str
    _patterns: dict[str, Pattern] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        for kind, source in (("configure", self.configure), ("write", self.write), ("read", self.read)):
            self._patterns[kind] = _compile(kind, source)

    def allow(self, kind: Kind, name: str) -> bool:
        """Return whether the user has a permission for a queue or exchange.

        Args:
            name: Name of the resource; "" is the default exchange, matched as ``amq.default``.
        """
        return self._patterns[kind].matches(name or DEFAULT_EXCHANGE)


@dataclass(frozen=True, slots=True)
class TopicPermissions:
    """Permissions of a user for the routing keys of a topic exchange.

    Args:
        write: Regular expression for keys that the user may publish with. ``{username}`` and ``{vhost}`` are replaced.
        read: Regular expression for keys that the user may bind with, with the same placeholders.
        username: Value of ``{username}``. As in RabbitMQ it is not escaped: a dot in it matches any character.
        vhost: Value of ``{vhost}``, not escaped either.
    Raises:
        InvalidPattern: One of them cannot be compiled, before or after the replacement.
    """

    write: str
    read: str
    username: str
    vhost: str
    _patterns: dict[str, Pattern] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        for kind, source in (("write", self.write), ("read", self.read)):
            _compile(kind, source)
            self._patterns[kind] = _compile(kind, self._expand(source))

    def allow(self, kind: TopicKind, routing_key: str) -> bool:
        """Return whether the user has a permission for a routing key."""
        return self._patterns[kind].matches(routing_key)

    def _expand(self, source: str) -> str:
        return source.replace("{username}", self.username).replace("{vhost}", self.vhost)


def _compile(kind: str, source: str) -> Pattern:
    try:
        return compile_permission(source)
    except InvalidPattern as invalid:
        raise invalid.within(kind) from None
