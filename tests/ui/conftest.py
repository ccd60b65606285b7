"""A real broker and a real browser for the pages of the UI."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Error, Page, expect, sync_playwright

from tests.support.leveret_process import LeveretProcess
from tests.support.management import Management
from tests.ui.pages import Ui

_SYSTEM_NEEDS: Final = Path(__file__).parents[1] / "system-needs.sh"
#: Milliseconds that a page may take for anything; a machine that builds beside the tests is slow.
_TIMEOUT: Final = 120_000
expect.set_options(timeout=_TIMEOUT)

_FLAGS: Final = (
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
#: Chromium says on the console that an answer was a refusal; tests of refusals name the status that they expect.
_REFUSED: Final = re.compile(r"Failed to load resource: the server responded with a status of (\d+)")
_DISCONNECTED: Final = "Failed to load resource: net::ERR_"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark everything here."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker("ui")


# Not of the whole session: Playwright's event loop counts as running as long as the browser does, and tests of other
# folders have loops of their own.
@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """The system's Chromium."""
    found = subprocess.run(["sh", _SYSTEM_NEEDS, "find-chromium"], capture_output=True, text=True, check=False)
    assert found.returncode == 0, "no Chromium: sh tests/system-needs.sh chromium"
    flags = [*_FLAGS, *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=found.stdout.strip(), args=flags)
        yield launched
        launched.close()


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LeveretProcess]:
    """One broker of all tests in this process: name what you make after the test."""
    with LeveretProcess(tmp_path_factory.mktemp("leveret")) as process:
        yield process


@pytest.fixture
def own_broker(tmp_path: Path, console: Console) -> Iterator[LeveretProcess]:
    """A broker of the test's own, to be stopped or filled; its pages are closed before it stops."""
    with LeveretProcess(tmp_path) as process:
        yield process
        console.leave()


@pytest.fixture
def api(broker: LeveretProcess) -> Management:
    """The API of the broker of all tests."""
    return Management(broker.http_url)


@pytest.fixture
def vhost(request: pytest.FixtureRequest, api: Management) -> Iterator[str]:
    """A virtual host with nothing in it, called as the test's module says: ``VHOST``."""
    name: str = request.module.VHOST
    api.request("PUT", "vhosts", name)
    yield name
    api.request("DELETE", "vhosts", name)


@pytest.fixture
def declare(api: Management, vhost: str) -> Callable[..., None]:
    """Declare a durable queue in ``vhost`` and publish persistent messages of ten bytes to it."""

    def make(name: str, messages: int = 0, **arguments: object) -> None:
        """Declare a queue."""
        given = {f"x-{key.replace('_', '-')}": value for key, value in arguments.items()}
        api.request("PUT", "queues", vhost, name, body={"durable": True, "arguments": given})
        message = {
            "properties": {"delivery_mode": 2},
            "routing_key": name,
            "payload": "0123456789",
            "payload_encoding": "string",
        }
        for _ in range(messages):
            api.request("POST", "exchanges", vhost, "amq.default", "publish", body=message)

    return make


class Console:
    """What pages wrote on the browser's console, or did not catch."""

    def __init__(self) -> None:
        self.errors: list[str] = []
        self.contexts: list[BrowserContext] = []
        self._allowed: set[int] = set()
        self._may_disconnect = False
        self._has_left = False

    def allow(self, *statuses: int) -> None:
        """Expect answers with these statuses."""
        self._allowed.update(statuses)

    def allow_disconnection(self) -> None:
        """Expect that there is no answer."""
        self._may_disconnect = True

    def watch(self, page: Page) -> None:
        """Listen to a page."""
        page.on("console", self._note)
        page.on("pageerror", self._note_error)

    def leave(self) -> None:
        """Close all pages; what they write from now on does not count."""
        self._has_left = True
        while self.contexts:
            self.contexts.pop().close()

    def _note_error(self, error: Error) -> None:
        if not self._has_left:
            self.errors.append(str(error))

    def _note(self, message: ConsoleMessage) -> None:
        if self._has_left or message.type not in ("error", "warning"):
            return
        refused = _REFUSED.match(message.text)
        if refused and int(refused[1]) in self._allowed:
            return
        if self._may_disconnect and message.text.startswith(_DISCONNECTED):
            return
        self.errors.append(f"{message.text} ({message.location.get('url')})")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown(item: pytest.Function) -> None:
    """Close the pages before fixtures delete what they show, which would be an error on the console."""
    watched = item.funcargs.get("console")
    if isinstance(watched, Console):
        watched.leave()


@pytest.fixture
def console() -> Iterator[Console]:
    """Fails the test after it if there was any error on the console."""
    watched = Console()
    yield watched
    assert watched.errors == []


@pytest.fixture
def new_context(browser: Browser, console: Console) -> Callable[..., BrowserContext]:
    """Make browser contexts, each without cookies; arguments are those of ``Browser.new_context``."""

    def make(**options: object) -> BrowserContext:
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})  # type: ignore[arg-type]
        context.set_default_timeout(_TIMEOUT)
        context.on("page", console.watch)
        console.contexts.append(context)
        return context

    return make


@pytest.fixture
def new_ui(new_context: Callable[..., BrowserContext], broker: LeveretProcess) -> Callable[..., Ui]:
    """Open the UI in a context of its own; see ``open_ui``."""

    def make(
        user: str | None = "guest",
        password: str = "guest",
        address: str = "#/",
        url: str | None = None,
        **options: object,
    ) -> Ui:
        """Open an address."""
        ui = Ui(new_context(**options).new_page(), url or broker.http_url)
        ui.open(address)
        if user is not None:
            ui.log_in(user, password)
        return ui

    return make


@pytest.fixture
def ui(new_ui: Callable[..., Ui]) -> Ui:
    """The UI with guest logged in, at the overview."""
    return new_ui()


@pytest.fixture
def assert_accessible() -> Callable[[Page], None]:
    """Fail for what axe finds on a page: labels, roles, contrast, order of headings."""
    axe = Axe()

    def check(page: Page) -> None:
        results = axe.run(page, options={"resultTypes": ["violations"]})
        assert results.violations_count == 0, results.generate_report()

    return check
