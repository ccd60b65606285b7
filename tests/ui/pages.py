"""The UI as a user handles it."""

from __future__ import annotations

from urllib.parse import urlsplit

from playwright.sync_api import Locator, Page, expect


class Ui:
    """One browser tab with the UI."""

    def __init__(self, page: Page, http_url: str) -> None:
        parts = urlsplit(http_url)
        self.page = page
        self.url = f"{parts.scheme}://{parts.hostname}:{parts.port}{parts.path.rstrip('/')}/"

    def open(self, address: str = "#/") -> None:
        """Load the page at an address, for example ``#/exchanges``."""
        self.page.goto(self.url + address)

    def go(self, address: str) -> None:
        """Go to another address as a link does."""
        self.page.evaluate("address => { location.hash = address; }", address)

    def log_in(self, user: str = "guest", password: str = "guest") -> None:
        """Log in and wait for the page."""
        self.enter(user, password)
        expect(self.main.get_by_role("heading", level=1)).to_be_visible()

    def enter(self, user: str, password: str) -> None:
        """Fill in the form and send it."""
        self.page.locator("form.login-form").get_by_label("User name").fill(user)
        self.page.locator("form.login-form").get_by_label("Password").fill(password)
        self.page.get_by_role("button", name="Log in").click()

    @property
    def main(self) -> Locator:
        """The page's own part."""
        return self.page.locator("main#main")

    def choose(self, what: str, value: str) -> None:
        """Choose ``vhost``, ``refresh`` (seconds), ``theme`` or ``range`` (seconds)."""
        control, menu = self.page.locator(f"#choose-{what}"), self.page.get_by_role("button", name="Menu", exact=True)
        is_behind = menu.is_visible() and not control.is_visible()
        if is_behind:
            menu.click()
        control.select_option(value)
        if is_behind:
            menu.click()

    def tab(self, name: str) -> Locator:
        """A link of the navigation."""
        return self.page.get_by_role("navigation").get_by_role("link", name=name, exact=True)

    def rows(self) -> Locator:
        """The rows of the page's tables, without their headings."""
        return self.main.locator("tbody tr")

    def row(self, text: str) -> Locator:
        """The row that has a cell or a link with just this text."""
        return self.rows().filter(has=self.page.get_by_text(text, exact=True))

    def refresh(self) -> None:
        """Bring the page up to date, and wait until an answer has come."""
        with self.page.expect_response(lambda response: "/api/" in response.url):
            # A click would take the focus along. On narrow screens the button is in a menu.
            self.page.get_by_label("Refresh now").dispatch_event("click")
