"""What the scopes of a token allow, as RabbitMQ 3.10.8 decides.

A scope is ``PERMISSION:VHOST/NAME`` or ``PERMISSION:VHOST/NAME/ROUTING-KEY``, where the permission is configure, write
or read, or it is ``tag:TAG``. All others mean nothing here.

Source: https://www.rabbitmq.com/docs/oauth2#scope-translation
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, get_args
from urllib.parse import unquote_to_bytes

from leveret.policies.permissions import Kind

_KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
_TAG: Final = "tag:"
#: A percent sign without two hexadecimal digits behind it.
_BAD_ESCAPE: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")


class Wildcards:
    """A pattern in which ``*`` stands for any bytes, ``+`` for a space, and ``%2F`` for a slash.

    Args:
        pattern: The pattern. One with a malformed escape matches nothing.
    """

    __slots__ = ("_parts",)

    def __init__(self, pattern: str) -> None:
        if _BAD_ESCAPE.search(pattern):
            self._parts: list[bytes] | None = None
        else:
            # Split first: %2A is a star that stands for itself.
            self._parts = [unquote_to_bytes(part.replace("+", " ")) for part in pattern.split("*")]

    def matches(self, text: bytes) -> bool:
        """Return whether a name matches.

        As in RabbitMQ each part is looked for once, where it comes first: ``a*b`` matches ``ab`` and ``axb``, but not
        ``abb``. Names that this refuses are refused there, too.
        """
        if self._parts is None or not text.startswith(self._parts[0]):
            return False
        at, last = len(self._parts[0]), len(self._parts) - 1
        for index, part in enumerate(self._parts[1:], 1):
            if index == last and not part:
                return True
            if at == len(text):
                return False
            found = text.find(part, at)
            if found < 0:
                return False
            at = found + len(part)
        return at == len(text)


@dataclass(frozen=True, slots=True)
class _Scope:
    """A scope that is a permission; routing_key is None if it says nothing of topics."""

    text: str
    kind: Kind
    vhost: Wildcards
    name: Wildcards
    routing_key: Wildcards | None


class Scopes:
    """The scopes of a token, without their prefix.

    Args:
        texts: The scopes.

    Attributes:
        tags: The tags that they give, sorted.
    """

    __slots__ = ("_scopes", "tags")

    def __init__(self, texts: Iterable[str]) -> None:
        texts = tuple(texts)
        self.tags = tuple(sorted({text.removeprefix(_TAG) for text in texts if text.startswith(_TAG)}))
        self._scopes = tuple(_permissions(texts))

    def allows_vhost(self, vhost: str) -> bool:
        """Return whether any scope is a permission in a virtual host, which gives access to it."""
        octets = _encode(vhost)
        return any(scope.vhost.matches(octets) for scope in self._scopes)

    def deciding(self, kind: Kind, vhost: str, name: str, routing_key: str | None = None) -> str | None:
        """Return the first scope that gives a permission; None if none does. Only one with a routing key allows topics.

        Args:
            kind: The permission.
            vhost: Name of the virtual host.
            name: Name of the queue or exchange; the default exchange is ``amq.default``.
            routing_key: The routing key, on a topic exchange; None for the queue or exchange itself.
        """
        in_vhost, named = _encode(vhost), _encode(name)
        key = None if routing_key is None else _encode(routing_key)
        for scope in self._scopes:
            if scope.kind != kind or not scope.vhost.matches(in_vhost) or not scope.name.matches(named):
                continue
            if key is None or (scope.routing_key is not None and scope.routing_key.matches(key)):
                return scope.text
        return None


def _permissions(texts: Iterable[str]) -> Iterator[_Scope]:
    for text in texts:
        for kind in _KINDS:
            parts = text.removeprefix(f"{kind}:").split("/")
            if text.startswith(f"{kind}:") and len(parts) in (2, 3):
                vhost, name, *keys = map(Wildcards, parts)
                yield _Scope(text, kind, vhost, name, keys[0] if keys else None)


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
