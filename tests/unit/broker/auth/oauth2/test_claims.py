"""Audience, user and scopes in the claims of a token."""

from __future__ import annotations

from typing import Any

import pytest

from leveret.broker.auth.oauth2.settings import ResourceServer
from leveret.broker.auth.oauth2.tokens import TokenRefused, read_audience, read_scopes, read_username

_SERVER = ResourceServer("mq", scope_prefix="mq.")


@pytest.mark.parametrize("scope", [["mq.a", "other.b", "mq.c"], "mq.a  other.b mq.c"])
def test_scopes_are_a_list_or_words_and_have_a_prefix(scope: object) -> None:
    assert read_scopes({"scope": scope}, _SERVER) == ["a", "c"]


@pytest.mark.parametrize(
    ("key", "claims"),
    [
        ("extra", {"extra": ["mq.b"]}),
        ("extra", {"extra": "mq.b"}),
        ("extra", {"extra": {"mq": ["b"], "else": ["c"]}}),
        ("extra", {"extra": {"mq": "b"}}),
        ("none extra", {"extra": ["mq.b"]}),
        ("realm_access.roles", {"realm_access": {"roles": ["mq.b", "offline_access"]}}),
        ("resource_access", {"resource_access": {"mq": ["b"]}}),
        ("a.b", {"a.b": ["mq.b"]}),
    ],
)
def test_additional_scopes_come_first(key: str, claims: dict[str, Any]) -> None:
    server = ResourceServer("mq", scope_prefix="mq.", additional_scopes_keys=tuple(key.split()))
    assert read_scopes({"scope": "mq.a", **claims}, server) == ["b", "a"]
    assert read_scopes(claims, server) == ["b"]


@pytest.mark.parametrize("extra", [5, None, {"mq": 5}, {"else": ["mq.b"]}, True])
def test_additional_scopes_of_another_form_are_none(extra: object) -> None:
    server = ResourceServer("mq", scope_prefix="mq.", additional_scopes_keys=("extra",))
    assert read_scopes({"scope": "mq.a", "extra": extra}, server) == ["a"]


def test_permissions_of_keycloak_are_scopes() -> None:
    permissions = [{"scopes": ["mq.b", "mq.c"]}, {"rsname": "x"}, "odd", {"scopes": "mq.d"}]
    claims = {"scope": "mq.a", "authorization": {"permissions": permissions}}
    assert read_scopes(claims, _SERVER) == ["b", "c", "d", "a"]


def test_aliases_stand_for_scopes_and_stay() -> None:
    aliases = {"admin": ("mq.tag:administrator", "mq.read:*/*"), "mq.dev": ("mq.write:dev/*",)}
    server = ResourceServer("mq", scope_prefix="mq.", scope_aliases=aliases)
    assert read_scopes({"scope": "admin mq.dev"}, server) == ["dev", "tag:administrator", "read:*/*", "write:dev/*"]


def test_aliases_in_additional_scopes() -> None:
    """RabbitMQ 3.10.8 forgets `scope` here."""
    server = ResourceServer(
        "mq", scope_prefix="mq.", scope_aliases={"admin": ("mq.a",)}, additional_scopes_keys=("extra",)
    )
    assert read_scopes({"scope": "mq.b admin", "extra": ["admin", "mq.c"]}, server) == ["c", "b", "a", "a"]


@pytest.mark.parametrize("claims", [{}, {"scope": 5}, {"scope": ["mq.a", 5]}, {"scope": {"mq.a": 1}}, {"scope": None}])
def test_a_token_without_scopes_is_refused(claims: dict[str, Any]) -> None:
    with pytest.raises(TokenRefused, match="scope"):
        read_scopes(claims, _SERVER)


def test_the_audience_is_a_list_or_words() -> None:
    assert read_audience({"aud": "a b"}) == ("a", "b")
    assert read_audience({"aud": ["a b", "c"]}) == ("a b", "c")
    assert read_audience({}) is None
    with pytest.raises(TokenRefused, match="aud"):
        read_audience({"aud": 7})


@pytest.mark.parametrize(
    ("claims", "name"),
    [
        ({"sub": "s", "client_id": "c", "email": "e"}, "c"),
        ({"sub": "s", "email": "e"}, "s"),
        ({"email": "e"}, "sent"),
        ({"sub": None, "client_id": ""}, "sent"),
    ],
)
def test_the_user_is_named_by_a_claim_or_by_the_client(claims: dict[str, Any], name: str) -> None:
    assert read_username(claims, _SERVER, "sent") == name


def test_preferred_claims_are_looked_in_first() -> None:
    server = ResourceServer("mq", preferred_username_claims=("none", "email"))
    assert read_username({"sub": "s", "client_id": "c", "email": "e"}, server, "sent") == "e"


def test_a_token_without_a_name_is_refused() -> None:
    with pytest.raises(TokenRefused, match="no name"):
        read_username({}, _SERVER, "")
    with pytest.raises(TokenRefused, match="sub"):
        read_username({"sub": 5}, _SERVER, "sent")
