"""A real provider, Keycloak: programs by token, and people in a browser who log in, stay, and log out."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pika
import pytest
import yaml
from playwright.sync_api import expect

from tests.support.keycloak import CLIENT, PASSWORD, USER, Keycloak, install
from tests.support.leveret_process import LeveretProcess
from tests.support.tokens import RESOURCE_SERVER
from tests.ui.conftest import Console
from tests.ui.pages import Ui

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

#: Seconds that a token is valid.
_LIFETIME = 20


@pytest.fixture(scope="module")
def keycloak(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keycloak]:
    """A Keycloak whose tokens live for a short time."""
    with Keycloak(install(tmp_path_factory.mktemp("keycloak")), _LIFETIME) as keycloak:
        yield keycloak


@pytest.fixture
def own_broker(tmp_path: Path, keycloak: Keycloak, console: Console) -> Iterator[LeveretProcess]:
    """A broker that takes Keycloak's tokens, configured as docs/oauth2.md shows it."""
    config = tmp_path / "leveret.yaml"
    options = {
        "auth_backends": ["oauth2", "internal"],
        "auth_oauth2": {
            "resource_server_id": RESOURCE_SERVER,
            "issuer": keycloak.issuer,
            "preferred_username_claims": ["preferred_username"],
        },
        "management": {"oauth_enabled": True, "oauth_client_id": CLIENT},
    }
    config.write_text(yaml.safe_dump(options))
    with LeveretProcess(tmp_path, config=config) as process:
        yield process
        console.leave()


def test_a_program_by_its_token(keycloak: Keycloak, own_broker: LeveretProcess) -> None:
    parameters = pika.URLParameters(own_broker.url)
    parameters.credentials = pika.PlainCredentials("", keycloak.token())
    began = time.monotonic()
    with pika.BlockingConnection(parameters) as connection:
        channel = connection.channel()
        channel.queue_declare("orders", durable=True)
        channel.basic_publish("", "orders", b"one")
        while time.monotonic() < began + _LIFETIME + 5:
            connection.process_data_events(_LIFETIME / 4)
            connection.update_secret(keycloak.token(), "the old one expires")
        assert channel.basic_get("orders", auto_ack=True)[2] == b"one"
        keycloak.rotate_keys()
        connection.update_secret(keycloak.token(), "signed with a new key")
        with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as closed:
            connection.process_data_events(60)
        assert (closed.value.reply_code, closed.value.reply_text) == (320, "CONNECTION_FORCED - credential expired")


def test_people_log_in_stay_and_log_out(
    new_ui: Callable[..., Ui], keycloak: Keycloak, own_broker: LeveretProcess, console: Console
) -> None:
    ui = new_ui(user=None, url=own_broker.http_url)
    _sign_on(ui)
    expect(ui.page.get_by_text(USER, exact=True)).to_be_visible()
    # Longer than a token lives.
    ui.choose("refresh", "5")
    ui.page.wait_for_timeout((_LIFETIME + 15) * 1000)
    ui.go("#/exchanges")
    expect(ui.row("amq.topic")).to_be_visible()
    ui.page.get_by_role("button", name="Log out").click()
    expect(ui.page.get_by_role("button", name="Continue with single sign-on")).to_be_visible()
    assert ui.page.url == ui.url
    # Logged out at Keycloak as well: it asks for the password again.
    _sign_on(ui)
    assert "eyJ" not in own_broker.log_text()


def test_a_session_ends_that_the_provider_has_ended(
    new_ui: Callable[..., Ui], keycloak: Keycloak, own_broker: LeveretProcess, console: Console
) -> None:
    """A user whose session the provider has ended is not let in by the cookie."""
    console.allow(401)
    ui = new_ui(user=None, url=own_broker.http_url)
    _sign_on(ui)
    keycloak.end_sessions()
    ui.choose("refresh", "5")
    expect(ui.page.get_by_text("Your session has ended. Please log in again.")).to_be_visible()


def _sign_on(ui: Ui) -> None:
    ui.page.get_by_role("button", name="Continue with single sign-on").click()
    # Its page goes on changing after it has come.
    ui.page.wait_for_url("**/protocol/openid-connect/auth?**", wait_until="networkidle")
    for field, text in (("#username", USER), ("#password", PASSWORD)):
        ui.page.locator(field).fill(text)
        expect(ui.page.locator(field)).to_have_value(text)
    ui.page.locator("#kc-login").click()
    expect(ui.main.get_by_role("heading", level=1)).to_contain_text("Overview")
