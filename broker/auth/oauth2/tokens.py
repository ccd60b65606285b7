"""Reads and verifies signed tokens, finds audience, name of the user and scopes in their claims; what scopes allow.

Source: RFC 7515, RFC 7519, and the advice of RFC 8725. Of the claims https://www.rabbitmq.com/docs/oauth2#scope-and-tags,
in the order of steps of RabbitMQ 3.10.8.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, get_args
from urllib.parse import unquote_to_bytes

import jwt
from jwt.api_jws import PyJWS

from leveret.broker.auth.oauth2.keys import SigningKey
from leveret.broker.auth.oauth2.settings import ResourceServer
from leveret.policies.permissions import Kind

#: Largest token in bytes.
TOKEN_MAX: Final = 65_536
#: Longest `kid`, in characters.
_KID_MAX: Final = 1024
#: Claims that name the user, behind those of `preferred_username_claims`.
_USERNAME_CLAIMS: Final = ("client_id", "sub")

_JWS: Final = PyJWS()


class TokenRefused(ValueError):
    """A token is not taken. The text says why, for the log, and has nothing of the token that is secret."""


@dataclass(frozen=True, slots=True)
class Token:
    """A token that has been read.

    Attributes:
        octets: The token.
        kid: Name of the key that it says it is signed with; None if it says nothing.
        claims: Its claims. They prove nothing before `verify` has returned.
    """

    octets: bytes
    kid: str | None
    claims: Mapping[str, Any]


def read_token(octets: bytes) -> Token:
    """Read a token, which verifies nothing.

    Raises:
        TokenRefused: It is too large, malformed, encrypted, nested, or has extensions that must be understood.
    """
    if len(octets) > TOKEN_MAX:
        raise TokenRefused(f"the token has {len(octets)} bytes, at most {TOKEN_MAX} are allowed")
    if octets.count(b".") == 4:
        raise TokenRefused("the token is encrypted (JWE); it must be signed only")
    try:
        read = _JWS.decode_complete(octets, options={"verify_signature": False})
        claims = json.loads(read["payload"])
    except (jwt.PyJWTError, ValueError, RecursionError):
        raise TokenRefused("the password is not a signed token (JWT)") from None
    header = read["header"]
    if not isinstance(claims, dict) or str(header.get("cty", "")).casefold().endswith("jwt"):
        raise TokenRefused("the token has no claims of its own, such as a token inside a token")
    if "crit" in header or "b64" in header:
        raise TokenRefused("the token has extensions (crit), none of which is supported")
    kid = header.get("kid")
    if kid is not None and (not isinstance(kid, str) or len(kid) > _KID_MAX):
        raise TokenRefused("the name of the token's key (kid) is too long, or no string")
    return Token(octets, kid, claims)


def verify_signature(token: Token, key: SigningKey, algorithms: Sequence[str]) -> None:
    """Verify the signature of a token.

    Args:
        token: The token.
        key: The key that it must be signed with.
        algorithms: The algorithms that are allowed; of these, only the key's are.
    Raises:
        TokenRefused: The signature is not this key's, or made in another way than allowed.
    """
    allowed = [each for each in key.algorithms if each in algorithms]
    try:
        _JWS.decode_complete(token.octets, key.key, allowed or ["none of them"])
    except jwt.InvalidAlgorithmError:
        names = ", ".join(allowed) or "none"
        raise TokenRefused(f"the token's algorithm is not one of its key that is allowed ({names})") from None
    except (jwt.PyJWTError, ValueError, TypeError):
        raise TokenRefused("the token's signature is invalid") from None


def read_expiry(claims: Mapping[str, Any]) -> float | None:
    """Return when a token expires, in seconds since 1970; None if it never does.

    Raises:
        TokenRefused: It is not a number.
    """
    return _seconds(claims, "exp")


def check_times(claims: Mapping[str, Any], now: float, leeway: int) -> None:
    """Refuse a token that has expired or is not valid yet.

    Args:
        claims: Claims of the token.
        now: Seconds since 1970.
        leeway: Seconds by which the clocks of provider and broker may differ.
    Raises:
        TokenRefused: It has expired, is not valid yet, or its times are malformed.
    """
    expiry, start = _seconds(claims, "exp"), _seconds(claims, "nbf")
    if expiry is not None and expiry + leeway <= now:
        raise TokenRefused(f"the token has expired at {expiry:.0f} (now: {now:.0f})")
    if start is not None and start - leeway > now:
        raise TokenRefused(f"the token is valid from {start:.0f} (now: {now:.0f})")


def _seconds(claims: Mapping[str, Any], claim: str) -> float | None:
    value = claims.get(claim)
    if value is None:
        return None
    # Integers first: one of a thousand digits does not fit a float.
    if isinstance(value, bool) or not isinstance(value, int | float) or not -(2**53) < value < 2**53:
        raise TokenRefused(f"the claim {claim} is not a number of seconds")
    return float(value)


# -- claims -------------------------------------------------------------------------------------------------


def read_audience(claims: Mapping[str, Any]) -> tuple[str, ...] | None:
    """Return the audience of a token; None if it has none.

    Raises:
        TokenRefused: It is neither a list of strings nor a string.
    """
    audience = claims.get("aud")
    return None if audience is None else tuple(_words(audience, "aud"))


def read_username(claims: Mapping[str, Any], server: ResourceServer, name: str) -> str:
    """Return the name of the user.

    Args:
        claims: Claims of the token.
        server: Names the claims to look in.
        name: What the client calls itself; used if the token has no name.
    Raises:
        TokenRefused: There is no name, or it is not a string.
    """
    for claim in (*server.preferred_username_claims, *_USERNAME_CLAIMS):
        found = claims.get(claim)
        if found is not None and not isinstance(found, str):
            raise TokenRefused(f"the claim {claim}, which names the user, is not a string")
        if found:
            return found
    if not name:
        raise TokenRefused("the token has no name of a user")
    return name


def read_scopes(claims: Mapping[str, Any], server: ResourceServer) -> list[str]:
    """Return the scopes for a resource server, with aliases resolved and without the prefix; others are left out.

    Raises:
        TokenRefused: There are none, or not in a form that is known.
    """
    found = [*_additional_scopes(claims, server)]
    if "scope" in claims:
        found += _words(claims["scope"], "scope")
    elif not found:
        raise TokenRefused("the token has no scope")
    found[:0] = _keycloak_scopes(claims)
    for scope in [*found]:
        found += server.scope_aliases.get(scope, ())
    prefix = server.scope_prefix
    return [scope.removeprefix(prefix) for scope in found if scope.startswith(prefix)]


def _additional_scopes(claims: Mapping[str, Any], server: ResourceServer) -> Iterator[str]:
    """Yield the scopes in the claims of `additional_scopes_key`; one may be inside others: `realm_access.roles`."""
    for key in server.additional_scopes_keys:
        found = claims.get(key)
        if found is None:
            found = claims
            for step in key.split("."):
                found = found.get(step) if isinstance(found, Mapping) else None
        if isinstance(found, Mapping):
            # By resource server, without the prefix.
            found = found.get(server.id)
            if isinstance(found, list | str):
                yield from (f"{server.id}.{scope}" for scope in _words(found, key))
        elif isinstance(found, list | str):
            yield from _words(found, key)


def _keycloak_scopes(claims: Mapping[str, Any]) -> Iterator[str]:
    """Yield the scopes of the permissions in a "requesting party token" of Keycloak."""
    authorization = claims.get("authorization")
    permissions = authorization.get("permissions") if isinstance(authorization, Mapping) else None
    for permission in permissions if isinstance(permissions, list) else ():
        scopes = permission.get("scopes") if isinstance(permission, Mapping) else None
        if scopes is not None:
            yield from [scopes] if isinstance(scopes, str) else _words(scopes, "authorization.permissions")


def _words(value: object, claim: str) -> list[str]:
    """Return a list of strings, which may be one string with spaces."""
    if isinstance(value, str):
        return [word for word in value.split(" ") if word]
    if isinstance(value, list) and all(isinstance(word, str) for word in value):
        return value
    raise TokenRefused(f"the claim {claim} is not a list of strings")


# -- scopes -------------------------------------------------------------------------------------------------

# A scope is `PERMISSION:VHOST/NAME` or `PERMISSION:VHOST/NAME/ROUTING-KEY`, where the permission is configure, write or
# read, or it is `tag:TAG`. All others mean nothing here, as RabbitMQ 3.10.8 decides:
# https://www.rabbitmq.com/docs/oauth2#scope-translation

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
