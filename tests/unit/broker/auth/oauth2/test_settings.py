"""The options of OAuth 2: what they mean together, and what is wrong with them."""

from __future__ import annotations

import builtins
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from leveret.broker.auth.backend_interface import Backend
from leveret.broker.auth.backends.answers import AnswerCache
from leveret.broker.auth.oauth2.keys import ALGORITHMS
from leveret.broker.auth.oauth2.settings import OAuth2Settings, ResourceServer, is_safe_url, read_settings
from leveret.broker.auth.registry import BACKENDS, open_sign_on
from leveret.broker.config.auth import AuthOAuth2
from leveret.broker.config.config_errors import ConfigError
from leveret.broker.config.declaration import build
from leveret.broker.config.load import load
from leveret.broker.config.options import Settings
from leveret.storage.clock import Clock
from tests.support.tokens import Signer

_ISSUER = "https://login.example.com/realms/a"


def _backend(settings: Settings) -> Backend:
    return BACKENDS["oauth2"](settings, cast(AnswerCache, None), Clock())


def _read(**options: Any) -> OAuth2Settings:
    return read_settings(build(AuthOAuth2, options))


def test_one_name_and_one_provider() -> None:
    found = _read(resource_server_id="mq", issuer=_ISSUER, leeway=5)
    assert found.servers == (ResourceServer("mq", scope_prefix="mq."),)
    provider = found.providers[""]
    assert provider.discovery == f"{_ISSUER}/.well-known/openid-configuration"
    assert (provider.algorithms, found.leeway) == (ALGORITHMS, 5)
    assert provider.tls is not None
    assert (provider.tls.verify_mode, provider.tls.check_hostname) == (ssl.CERT_REQUIRED, True)


def test_what_a_resource_server_does_not_say_is_as_for_all() -> None:
    found = _read(
        issuer=_ISSUER,
        additional_scopes_key="roles realm_access.roles",
        preferred_username_claims=("email",),
        scope_aliases={"admin": "a b", "1": {"alias": "dev", "scope": "c"}},
        oauth_providers={"two": {"jwks_url": "https://keys.example/", "algorithms": {"1": "ES256", "2": "RS256"}}},
        resource_servers={"a": {}, "b": {"id": "bee", "oauth_provider_id": "two", "verify_aud": False}},
    )
    a, b = found.servers
    assert (a.id, a.provider, a.scope_prefix, a.verify_aud) == ("a", "", "a.", True)
    assert (b.id, b.provider, b.scope_prefix, b.verify_aud) == ("bee", "two", "bee.", False)
    for server in (a, b):
        assert server.scope_aliases == {"admin": ("a", "b"), "dev": ("c",)}
        assert server.additional_scopes_keys == ("roles", "realm_access.roles")
        assert server.preferred_username_claims == ("email",)
    assert found.providers["two"].algorithms == ("ES256", "RS256")
    assert found.providers["two"].jwks_uri == "https://keys.example/"


def test_the_default_provider() -> None:
    found = _read(
        resource_server_id="mq", default_oauth_provider="x", oauth_providers={"x": {"issuer": _ISSUER}}, scope_prefix=""
    )
    assert (found.servers[0].provider, found.servers[0].scope_prefix) == ("x", "")


def test_verification_of_the_provider_may_be_switched_off() -> None:
    settings = build(Settings, {"auth_oauth2.issuer": _ISSUER, "auth_oauth2.https.peer_verification": "verify_none"})
    tls = read_settings(settings.auth_oauth2).providers[""].tls
    assert tls is not None
    assert tls.verify_mode == ssl.CERT_NONE


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, "auth_oauth2.issuer: needed"),
        ({"oauth_providers": {"x": {}}, "default_oauth_provider": "x"}, "oauth_providers.x.issuer: needed"),
        ({"issuer": "http://login.example.com"}, "issuer: must be a URL with https"),
        ({"jwks_uri": "ftp://keys.example"}, "jwks_uri: must be a URL with https"),
        ({"default_oauth_provider": "x", "issuer": _ISSUER}, "there is no provider 'x'"),
        ({"issuer": _ISSUER, "resource_servers": {"a": {"oauth_provider_id": "x"}}}, "there is no provider 'x'"),
        ({"issuer": _ISSUER, "resource_servers": {"a": {"scope": "x"}}}, "unknown option 'scope'"),
        ({"issuer": _ISSUER, "resource_servers": {"a": 5}}, "must be a mapping"),
        (
            {"issuer": _ISSUER, "resource_servers": {"a": {"verify_aud": "perhaps"}}},
            "verify_aud: must be true or false",
        ),
        ({"issuer": _ISSUER, "resource_servers": {"a": {"scope_prefix": 5}}}, "scope_prefix: must be a string"),
        ({"issuer": _ISSUER, "scope_aliases": {"a": 5}}, "scope_aliases: must be aliases"),
        ({"issuer": _ISSUER, "algorithms": ("HS256",)}, "shared secrets"),
        ({"issuer": _ISSUER, "algorithms": ("none",)}, "'none' is none of RS256"),
        ({"signing_keys": {"a": "/nowhere/key.pem"}}, r"signing_keys.a: /nowhere/key.pem cannot be read: No such file"),
        ({"signing_keys": {"a": 5}}, "signing_keys: must be names"),
        ({"oauth_providers": {"x": {"issuer": 5}}, "issuer": _ISSUER}, "oauth_providers.x.issuer: must be a string"),
    ],
)
def test_what_is_refused(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        _read(**options)


def test_keys_of_files(tmp_path: Path) -> None:
    file = tmp_path / "key.pem"
    file.write_bytes(Signer("Ed25519").pem())
    assert _read(signing_keys={"a": str(file)}).providers[""].keys["a"].algorithms == ("EdDSA",)


@pytest.mark.parametrize(
    ("url", "is_safe"),
    [
        ("https://a.example/x", True),
        ("http://localhost:8080/x", True),
        ("http://[::1]/", True),
        ("http://127.0.0.1.example/", False),
        ("https:///x", False),
        ("https://a:b/", False),
        ("file:///etc/passwd", False),
        ("", False),
    ],
)
def test_urls(url: str, is_safe: bool) -> None:
    assert is_safe_url(url) == is_safe


def test_the_file_as_in_the_documentation(tmp_path: Path) -> None:
    file = tmp_path / "leveret.yaml"
    file.write_text(f"auth_backends: [oauth2, internal]\nauth_oauth2:\n  issuer: {_ISSUER}\n  leeway: 10s\n")
    assert load(file, {"LEVERET_AUTH_OAUTH2_RESOURCE_SERVER_ID": "mq"}).auth_oauth2.resource_server_id == "mq"


def test_names_of_rabbitmq_conf(tmp_path: Path) -> None:
    key, file = tmp_path / "key.pem", tmp_path / "leveret.yaml"
    key.write_bytes(Signer().pem())
    file.write_text(f"""\
auth_backends.1: rabbit_auth_backend_oauth2
auth_oauth2.issuer: {_ISSUER}
auth_oauth2.signing_keys.key.1: {key}
auth_oauth2.algorithms.1: ES256
auth_oauth2.algorithms.2: RS256
auth_oauth2.preferred_username_claims.1: email
auth_oauth2.scope_aliases.1.alias: admin
auth_oauth2.scope_aliases.1.scope: mq.tag:administrator mq.read:*/*
auth_oauth2.scope_aliases.dev: mq.read:dev/*
auth_oauth2.oauth_providers.two.jwks_uri: https://keys.example/
auth_oauth2.oauth_providers.two.https.peer_verification: verify_none
auth_oauth2.resource_servers.mq.oauth_provider_id: two
auth_oauth2.resource_servers.mq.verify_aud: "false"
""")
    settings = load(file, {})
    assert settings.auth_backends == ("oauth2",)
    found = read_settings(settings.auth_oauth2)
    assert [*found.providers[""].keys] == ["key.1"]
    assert found.providers[""].algorithms == ("ES256", "RS256")
    assert found.providers["two"].tls.verify_mode == ssl.CERT_NONE  # type: ignore[union-attr]
    (server,) = found.servers
    assert (server.id, server.provider, server.verify_aud) == ("mq", "two", False)
    assert server.preferred_username_claims == ("email",)
    assert server.scope_aliases == {"admin": ("mq.tag:administrator", "mq.read:*/*"), "dev": ("mq.read:dev/*",)}


@pytest.mark.parametrize("line", ["auth_oauth2.resource_servers.a: 5\nauth_oauth2.resource_servers.a.id: b", "x.y: 1"])
def test_names_that_contradict_each_other_are_refused(tmp_path: Path, line: str) -> None:
    file = tmp_path / "leveret.yaml"
    file.write_text(f"auth_oauth2.issuer: {_ISSUER}\n{line}\n")
    with pytest.raises(ConfigError):
        read_settings(load(file, {}).auth_oauth2)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def missing(name: str, *arguments: Any, **more: Any) -> Any:
        if name == "leveret.broker.auth.oauth2.backend":
            raise ModuleNotFoundError("No module named 'jwt'", name="jwt")
        return real(name, *arguments, **more)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(ConfigError, match=r"needs the Python package jwt: pip install 'leveret\[oauth2\]'"):
        _backend(Settings())


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, "oauth_enabled: needs management.oauth_client_id"),
        ({"management.oauth_client_id": "a", "management.oauth_provider_url": "http://a.example"}, "https"),
    ],
)
def test_single_sign_on_needs_more(options: Mapping[str, object], text: str) -> None:
    settings = build(Settings, {"auth_oauth2.issuer": _ISSUER, "management.oauth_enabled": True, **options})
    with pytest.raises(ConfigError, match=text):
        open_sign_on(settings, _backend(settings), Clock())


def test_single_sign_on_needs_the_backend() -> None:
    with pytest.raises(ConfigError, match="needs oauth2 in auth_backends"):
        open_sign_on(build(Settings, {"management.oauth_enabled": True}), None, Clock())
    assert open_sign_on(Settings(), None, Clock()) is None
