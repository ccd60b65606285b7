"""What was lost."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, Final
from urllib.parse import quote

import pika
import pytest
from playwright.sync_api import Locator, expect

from tests.support.leveret_process import LeveretProcess
from tests.support.management import Management
from tests.ui.clients import Client
from tests.ui.pages import Ui

NewUi = Callable[..., Ui]
VHOST: Final = "losing"
MARKUP: Final = """<img src=x onerror="document.title='hit'">"""
FULL: Final = {"x-max-length": 2}
QUEUES: Final[dict[str, dict[str, Any]]] = {
    "dropping": FULL,
    "refusing": {**FULL, "x-overflow": "reject-publish"},
    "letters kept": {**FULL, "x-dead-letter-exchange": "kept"},
    "letters lost": {**FULL, "x-dead-letter-exchange": "nowhere"},
    "refusing letters": {**FULL, "x-overflow": "reject-publish-dlx", "x-dead-letter-exchange": "kept"},
    "expiring": {"x-message-ttl": 0},
    "rejecting": {},
    "purged": {},
    "deleted": FULL,
    MARKUP: FULL,
}


@pytest.fixture(scope="module")
def losing(broker: LeveretProcess) -> Iterator[str]:
    """A virtual host in which everything is lost that can be."""
    api = Management(broker.http_url)
    api.request("PUT", "vhosts", VHOST)
    with Client(f"{broker.url}/{VHOST}") as client:
        channel = client.channel
        channel.exchange_declare("kept", "fanout")
        channel.queue_declare("letters")
        channel.queue_bind("letters", "kept")
        for name, arguments in QUEUES.items():
            channel.queue_declare(name, durable=True, arguments=arguments)
            # The first two have room; of "dropping" the most is lost.
            for _ in range(12 if name == "dropping" else 5):
                channel.basic_publish("", name, b"x")
        for _ in range(4):
            channel.basic_publish("amq.direct", "to nobody", b"x")
        channel.confirm_delivery()
        with pytest.raises(pika.exceptions.UnroutableError):
            channel.basic_publish("amq.topic", "to nobody", b"x", mandatory=True)
        for _ in range(5):
            got = channel.basic_get("rejecting")[0]
            assert got is not None
            channel.basic_reject(got.delivery_tag, requeue=False)
        channel.queue_purge("purged")
        channel.queue_delete("deleted")
    with Client(f"{broker.url}/{VHOST}") as client:
        client.channel.queue_declare("own", exclusive=True, arguments=FULL)
        for _ in range(5):
            client.channel.basic_publish("", "own", b"x")
    yield VHOST
    api.request("DELETE", "vhosts", VHOST)


@pytest.fixture
def losses(losing: str, new_ui: NewUi) -> Ui:
    """The page, showing the last ten minutes."""
    ui = new_ui(address="#/losses")
    ui.choose("vhost", losing)
    ui.choose("window", "600")
    expect(ui.main.get_by_text("13 queues and exchanges")).to_be_visible()
    return ui


def amounts(row: Locator) -> dict[str, str]:
    """What is not empty in a row, by the heading."""
    found: dict[str, str] = row.evaluate(
        """(row) => Object.fromEntries([...row.closest("table").querySelectorAll("th")]
            .map((heading, index) => [heading.textContent, row.cells[index].textContent])
            .slice(2).filter(([, text]) => text !== ""))"""
    )
    return found


def figures(ui: Ui, group: str) -> dict[str, str]:
    """The large numbers of a group by their labels."""
    shown = ui.main.get_by_role("list", name=group, exact=True).get_by_role("listitem")
    pairs = [(each.locator(".figure-label"), each.locator(".figure-value")) for each in shown.all()]
    return {label.inner_text(): value.inner_text() for label, value in pairs}


def test_totals_add_up_and_are_explained(losses: Ui) -> None:
    lost = figures(losses, "Lost")
    # dropping 10, deleted 3, own 3, markup 3, refusing 3; expiring 5; rejecting 5; letters lost 3; exchange 4.
    assert lost == {
        "Permanently lost": "39",
        "Over the limit": "22",
        "Expired": "5",
        "Rejected": "5",
        "Dead letters lost": "3",
        "Unroutable": "4",
    }
    assert figures(losses, "Not lost") == {
        "Returned": "1",
        "Dead-lettered": "6",
        "Purged": "5",
        "Gone with the queue": "4",
    }
    expect(losses.main.get_by_text("None: delivery limit.")).to_be_visible()
    expect(losses.main.get_by_text("6 publishes were refused.")).to_be_visible()


ROWS: Final = {
    "dropping": {"Lost": "10", "Limit": "10"},
    "refusing": {"Lost": "3", "Refused": "3"},
    "letters kept": {"Lost": "0", "Dead-lettered": "3"},
    "letters lost": {"Lost": "3", "Dead letters": "3"},
    "refusing letters": {"Lost": "0", "Dead-lettered": "3"},
    "expiring": {"Lost": "5", "Expired": "5"},
    "rejecting": {"Lost": "5", "Rejected": "5"},
    "purged": {"Lost": "0", "Purged": "5"},
    "amq.direct": {"Lost": "4", "Unroutable": "4"},
    "amq.topic": {"Lost": "0", "Returned": "1"},
    MARKUP: {"Lost": "3", "Limit": "3"},
}


def test_who_lost_most_stands_first_with_reasons_and_links(losses: Ui) -> None:
    assert losses.main.locator("td.name a").first.inner_text() == "dropping"
    rows = losses.rows().filter(has=losses.page.locator("td.name a"))
    found = {row.locator("td.name a").inner_text(): amounts(row) for row in rows.all()}
    assert found == ROWS
    expect(losses.row("dropping").get_by_role("link")).to_have_attribute("href", f"#/queues/{VHOST}/dropping")
    link = losses.main.get_by_role("link", name=MARKUP, exact=True)
    quoted = quote(MARKUP, safe="!'()*")
    expect(link).to_have_attribute("href", f"#/queues/{VHOST}/{quoted}")
    exchange = losses.row("amq.direct")
    expect(exchange.get_by_role("link")).to_have_attribute("href", f"#/exchanges/{VHOST}/amq.direct")
    deleted = losses.rows().filter(has=losses.page.get_by_text("deleted queue", exact=True))
    assert amounts(deleted) == {"Lost": "3", "Limit": "3", "With queue": "2"}
    expect(deleted.get_by_role("link")).to_have_count(0)
    assert amounts(losses.rows().filter(has_text="other queues, together")) == {
        "Lost": "3",
        "Limit": "3",
        "With queue": "2",
    }
    assert losses.page.locator("img").count() == 0


def test_the_window_is_chosen_and_honest(losses: Ui) -> None:
    since = losses.main.get_by_text("Counted since 2")
    expect(since).to_contain_text("Earlier losses are not known: losses are counted since then, also over restarts.")
    with losses.page.expect_response(re.compile(r"/api/losses/losing\?.*&age=28800")):
        losses.choose("window", "28800")
    with losses.page.expect_response(re.compile(r"/api/losses/losing\?(?!.*&age=)")):
        losses.choose("window", "")
    expect(losses.rows()).to_have_count(13)
    with losses.page.expect_response(re.compile(r"/api/losses/losing\?.*&age=\d+")):
        losses.choose("window", "today")
    losses.page.reload()
    expect(losses.main.locator("#choose-window")).to_have_value("today")


def test_the_chart_shows_those_that_lost_most(losses: Ui) -> None:
    chart = losses.main.get_by_role("img", name="Losses over time")
    expect(chart).to_have_attribute("aria-label", re.compile("dropping: now"), timeout=120_000)
    expect(losses.main.locator(".legend li")).to_have_count(5)


def amount(lost: int, **more: int) -> dict[str, Any]:
    """Amounts as in the API; keyword arguments are such as ``dropped_expired`` or ``refused``."""
    document: dict[str, Any] = {"lost": lost, **{name: more.pop(name, 0) for name in ("refused", "refused_told")}}
    for table in ("dropped", "dead_lettered", "dead_letters_lost"):
        reasons = ("maxlen", "expired", "rejected", "delivery_limit", "purged", "deleted")
        document[table] = {reason: more.pop(f"{table}_{reason}", 0) for reason in reasons}
    document["unroutable"] = {"dropped": 0, "returned": 0}
    assert more == {}
    return document


REASONS: Final[list[tuple[dict[str, Any], dict[str, int]]]] = [
    # The exchange is there, and leads nowhere.
    (amount(3, dropped_maxlen=3, dead_lettered_maxlen=3, dead_letters_lost_maxlen=3), {"letters": 3}),
    # Half of the time there was none, and at first not even an argument for it.
    (
        amount(5, dropped_expired=10, dead_lettered_expired=5, dead_letters_lost_expired=3),
        {"expired": 2, "letters": 3, "kept": 5},
    ),
    (amount(0, refused=4, dead_lettered_maxlen=4), {"kept": 4}),
    (amount(4, refused=4, dropped_maxlen=3, dead_lettered_maxlen=3), {"refused": 4, "kept": 3}),
    # The publishers were told, also of those whose dead letters reached no queue.
    (amount(0, refused=4, refused_told=4), {"told": 4}),
    (
        amount(2, dropped_expired=2, refused=4, refused_told=3, dead_lettered_maxlen=4, dead_letters_lost_maxlen=3),
        {"expired": 2, "told": 3, "kept": 1},
    ),
    # Dead letters that are still on their way are not lost.
    (amount(0, dropped_delivery_limit=2), {"kept": 2}),
    (amount(1, dropped_rejected=1, dropped_purged=7), {"rejected": 1, "purged": 7}),
]


def test_reasons_add_up(ui: Ui) -> None:
    for given, reasons in REASONS:
        found = ui.page.evaluate(
            """async (given) => {
                const app = document.querySelector("script[type=module]").src;
                const { byReason } = await import(app.replace("app.js", "pages/losses.js"));
                return Object.fromEntries(Object.entries(byReason(given)).filter(([, value]) => value !== 0));
            }""",
            given,
        )
        assert found == reasons
        lost = ("maxlen", "refused", "expired", "rejected", "delivery_limit", "letters")
        assert sum(found.get(key, 0) for key in lost) == given["lost"]
