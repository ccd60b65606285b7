"""Single sign-on: at a provider, in a browser."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlsplit

import pytest
import yaml
from playwright.sync_api import Page, expect

from tests.support.leveret_process import LeveretProcess
from tests.support.management import Management
from tests.support.sign_on_provider import ProviderThread, SignOnProvider
from tests.support.tokens import RESOURCE_SERVER
from tests.ui.conftest import Console
from tests.ui.pages import Ui

NewUi = Callable[..., Ui]
Start = Callable[..., LeveretProcess]


@pytest.fixture
def provider() -> Iterator[SignOnProvider]:
    """A provider at which whoever presses the button is alice."""
    with ProviderThread() as provider:
        yield provider


@pytest.fixture
def start(tmp_path: Path, provider: SignOnProvider, console: Console) -> Iterator[Start]:
    """Start a broker whose pages have single sign-on; arguments are options of `management`."""
    started: list[LeveretProcess] = []

    def make(**management: Any) -> LeveretProcess:
        """Start it."""
        config = tmp_path / "leveret.yaml"
        options = {
            "auth_backends": ["oauth2", "internal"],
            "auth_oauth2": {"resource_server_id": RESOURCE_SERVER, "issuer": provider.issuer},
            "management": {"oauth_enabled": True, "oauth_client_id": "pages", **management},
        }
        config.write_text(yaml.safe_dump(options))
        process = LeveretProcess(tmp_path, config=config)
        started.append(process)
        return process

    yield make
    console.leave()
    for process in started:
        process.stop()


def _sign_on(ui: Ui) -> None:
    ui.page.get_by_role("button", name="Continue with single sign-on").click()
    ui.page.get_by_role("link", name="I am alice").click()


def test_logging_in_and_out(
    new_ui: NewUi, start: Start, provider: SignOnProvider, assert_accessible: Callable[[Page], None]
) -> None:
    broker = start()
    ui = new_ui(user=None, url=broker.http_url)
    assert_accessible(ui.page)
    _sign_on(ui)
    expect(ui.main.get_by_role("heading", level=1)).to_contain_text("Overview")
    expect(ui.page.get_by_text("alice")).to_be_visible()
    assert ui.page.url == ui.url
    (cookie,) = ui.page.context.cookies(ui.url)
    assert (cookie["httpOnly"], cookie["sameSite"], len(cookie["value"])) == (True, "Strict", 43)
    assert ui.page.evaluate("[document.cookie, JSON.stringify({...localStorage, ...sessionStorage})]")[0] == ""
    ui.page.reload()
    expect(ui.main.get_by_role("heading", level=1)).to_contain_text("Overview")
    ui.go("#/exchanges")
    expect(ui.row("amq.topic")).to_be_visible()
    ui.page.get_by_role("button", name="Log out").click()
    expect(ui.page.get_by_role("button", name="Continue with single sign-on")).to_be_visible()
    (logout,) = provider.logouts
    assert logout["post_logout_redirect_uri"] == ui.url
    assert logout["id_token_hint"].count(".") == 2
    ui.page.reload()
    expect(ui.page.get_by_role("button", name="Continue with single sign-on")).to_be_visible()
    assert "eyJ" not in broker.log_text()


def test_passwords_beside_it(new_ui: NewUi, start: Start, console: Console) -> None:
    console.allow(401)
    ui = new_ui(user=None, url=start().http_url)
    ui.enter("guest", "wrong")
    expect(ui.page.get_by_role("alert")).to_have_text("Login failed")
    ui.log_in()


def test_tokens_only(new_ui: NewUi, start: Start) -> None:
    broker = start(oauth_disable_basic_auth=True)
    with pytest.raises(HTTPError) as refused:
        Management(broker.http_url).request("GET", "whoami")
    with refused.value as answer:
        assert answer.code == 401
        assert json.load(answer)["reason"] == "HTTP access denied: basic auth disabled"
    ui = new_ui(user=None, url=broker.http_url)
    expect(ui.page.get_by_role("button", name="Continue with single sign-on")).to_be_focused()
    expect(ui.page.get_by_label("User name")).to_have_count(0)
    _sign_on(ui)
    expect(ui.main.get_by_role("heading", level=1)).to_contain_text("Overview")


def test_below_a_path(new_ui: NewUi, start: Start) -> None:
    broker = start(path_prefix="/broker")
    ui = new_ui(user=None, url=f"{broker.http_url}/broker")
    _sign_on(ui)
    expect(ui.main.get_by_role("heading", level=1)).to_contain_text("Overview")
    assert urlsplit(ui.page.url).path == "/broker/"


def test_a_session_is_renewed_before_its_token_expires(new_ui: NewUi, start: Start, provider: SignOnProvider) -> None:
    provider.lifetime = 12
    ui = new_ui(user=None, url=start().http_url)
    _sign_on(ui)
    expect(ui.main.get_by_role("heading", level=1)).to_contain_text("Overview")
    ui.choose("refresh", "5")
    deadline = time.monotonic() + 120
    while provider.renewals < 2:
        assert time.monotonic() < deadline
        ui.page.wait_for_timeout(200)
    ui.go("#/exchanges")
    expect(ui.row("amq.topic")).to_be_visible()


def test_a_session_ends_with_its_token_if_it_is_not_renewed(
    new_ui: NewUi, start: Start, provider: SignOnProvider, console: Console
) -> None:
    console.allow(401)
    provider.lifetime, provider.renews = 10, False
    broker = start()
    ui = new_ui(user=None, url=broker.http_url)
    _sign_on(ui)
    expect(ui.main.get_by_role("heading", level=1)).to_contain_text("Overview")
    ui.choose("refresh", "5")
    expect(ui.page.get_by_text("Your session has ended. Please log in again.")).to_be_visible()
    assert "cannot be renewed" in broker.log_text()


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"refuses": "access_denied"}, "The provider has not logged you in."),
        ({"refuses": "<script>"}, "The provider has not logged you in."),
        ({"scopes": ("rabbitmq.read:*/*",)}, "you may not use this broker"),
        ({"signers": []}, "The provider could not be asked."),
    ],
)
def test_a_login_that_fails(
    new_ui: NewUi, start: Start, provider: SignOnProvider, change: dict[str, Any], text: str
) -> None:
    ui = new_ui(user=None, url=start().http_url)
    if "signers" in change:
        provider.document["token_endpoint"] = f"{provider.issuer}/nowhere"
    else:
        vars(provider).update(change)
    _sign_on(ui)
    expect(ui.page.get_by_role("status")).to_contain_text(text)
    assert ui.page.url == ui.url


def test_another_browser_cannot_finish_a_login(new_ui: NewUi, start: Start, provider: SignOnProvider) -> None:
    """An attacker who sends people the end of the attacker's own login must not log them in as the attacker."""
    url = start().http_url
    attacker, victim = new_ui(user=None, url=url), new_ui(user=None, url=url)
    attacker.page.get_by_role("button", name="Continue with single sign-on").click()
    allow = attacker.page.get_by_role("link", name="I am alice").get_attribute("href")
    answer = attacker.page.request.get(f"{provider.issuer}{allow}", max_redirects=0)
    victim.page.goto(answer.headers["location"])
    expect(victim.page.get_by_role("status")).to_contain_text("has begun in another browser")
