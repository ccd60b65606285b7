"""The list of authentication backends, in all forms that RabbitMQ's configuration has."""

from __future__ import annotations

from pathlib import Path

import pytest

from leveret.broker.auth.registry import BACKENDS as MADE
from leveret.broker.config.auth import BACKENDS
from leveret.broker.config.config_errors import ConfigError
from leveret.broker.config.declaration import RawSetting
from leveret.broker.config.load import load


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ("internal",)),
        ("auth_backends: [http, internal]", ("http", "internal")),
        ("auth_backends: http", ("http",)),
        ("auth_backends: [http+internal, internal+http, internal]", ("http+internal", "internal+http", "internal")),
        ("auth_backends: [internal+internal, internal]", ("internal",)),
        ("auth_backends: [rabbit_auth_backend_internal, rabbit_auth_backend_http]", ("internal", "http")),
        ("auth_backends.10: http\nauth_backends.9: internal", ("internal", "http")),
        ("auth_backends.1.authn: http\nauth_backends.1.authz: internal", ("http+internal",)),
        ("auth_backends:\n  1: {authn: http, authz: internal}\n  2: internal", ("http+internal", "internal")),
    ],
)
def test_what_the_list_may_be(tmp_path: Path, text: str, expected: tuple[str, ...]) -> None:
    file = tmp_path / "leveret.yaml"
    file.write_text(text)
    assert load(file, {}).auth_backends == expected


def test_the_environment_and_the_command_line_have_the_same_forms() -> None:
    variables = {"LEVERET_AUTH_BACKENDS": "http+internal, internal"}
    assert load(None, variables).auth_backends == ("http+internal", "internal")


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        "{}",
        "[httpd]",
        "[http+internal+http]",
        "[http+]",
        "1",
        "{1: {authn: http}}",
        "{x: http}",
        "[[http]]",
        "[1]",
    ],
)
def test_what_it_may_not_be(tmp_path: Path, text: str) -> None:
    file = tmp_path / "leveret.yaml"
    file.write_text(f"auth_backends: {text}")
    with pytest.raises(ConfigError, match=r"leveret\.yaml:1: auth_backends: .* is not allowed; give a list of some of"):
        load(file, {})


def test_half_of_a_numbered_pair_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "leveret.yaml"
    file.write_text("\nauth_backends.1.authz: internal")
    with pytest.raises(ConfigError, match=r"leveret\.yaml:2: auth_backends: "):
        load(file, {})


def test_options_of_ldap_in_parts(tmp_path: Path) -> None:
    file = tmp_path / "leveret.yaml"
    file.write_text(
        "auth_ldap.servers.2: b\nauth_ldap.servers.10: c\nauth_ldap.servers.1: a\n"
        "auth_ldap.other_bind.user_dn: cn=x\nauth_ldap.other_bind.password: hidden\n"
    )
    options = load(file, {}, [RawSetting("auth_ldap.log", True, "a test")]).auth_ldap
    assert options.log == "true"
    assert options.servers == ("a", "b", "c")
    assert options.other_bind == {"user_dn": "cn=x", "password": "hidden"}
    assert "hidden" not in repr(options)
    file.write_text("auth_ldap:\n  servers: {2: b, 1: a}\n  dn_lookup_bind: {user_dn: cn=x, password: y}\n")
    assert load(file, {}).auth_ldap.servers == ("a", "b")
    file.write_text("auth_ldap.other_bind.password: hidden\n")
    with pytest.raises(ConfigError) as wrong:
        load(file, {})
    assert str(wrong.value) == (
        f"{file}:1: auth_ldap.other_bind: this value (dict) is not allowed;"
        " give as_user, anon, or a mapping with user_dn and password"
    )


def test_each_name_has_a_backend() -> None:
    assert set(BACKENDS) == {"internal", *MADE}
