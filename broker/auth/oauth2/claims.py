"""Finds in the claims of a token what the broker uses: audience, name of the user, scopes.

Source: https://www.rabbitmq.com/docs/oauth2#scope-and-tags; the order of steps is that of RabbitMQ 3.10.8.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from leveret.broker.auth.oauth2.errors import TokenRefused
from leveret.broker.auth.oauth2.settings import ResourceServer

#: Claims that name the user, behind those of `preferred_username_claims`.
_USERNAME_CLAIMS: Final = ("client_id", "sub")


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
