"""The list of authentication backends, in all forms that RabbitMQ's configuration has."""

from __future__ import annotations

from pathlib import Path

import pytest

from leveret.broker.auth.registry import BACKENDS as MADE
from leveret.broker.config.auth import BACKENDS
from leveret.broker.config.errors import ConfigError
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


def test_each_name_has_a_backend() -> None:
    assert set(BACKENDS) == {"internal", *MADE}
