"""The page with the nodes of a cluster."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest
from playwright.sync_api import expect

from leveret import LeveretCluster
from leveret.broker.embedded_cluster import ClusterNode
from tests.support.management import Management
from tests.ui.conftest import Console
from tests.ui.pages import Ui

NewUi = Callable[..., Ui]


@pytest.fixture
def cluster(console: Console) -> Iterator[LeveretCluster]:
    with LeveretCluster(3) as running:
        yield running
        console.leave()


def declare(node: ClusterNode) -> None:
    """Begin to declare a queue, so that all nodes in sync are waited for; who is away leaves the set."""

    def ask() -> None:
        with suppress(OSError):
            Management(node.http_url).request("PUT", "queues", "/", "q", body={"durable": True})

    threading.Thread(target=ask, daemon=True).start()


def plain(url: str) -> str:
    """Return a URL without its login."""
    return re.sub("//[^@/]*@", "//", url)


def test_nodes_are_shown_and_another_one_can_lead(new_ui: NewUi, cluster: LeveretCluster) -> None:
    first, second, third = cluster.nodes
    cluster.kill(third)
    declare(first)
    cluster.wait_until(lambda: first.report()["copies"] == 2)
    ui = new_ui(url=plain(second.http_url), address="#/replication")
    expect(ui.main.locator("dl.properties").first).to_contain_text("2 in sync; 2 needed")
    rows = ui.main.get_by_role("region", name="nodes").locator("tbody tr")
    expect(rows).to_have_count(3)
    expect(rows.nth(0)).to_contain_text("n1")
    expect(rows.nth(0)).to_contain_text("leader")
    expect(rows.nth(1)).to_contain_text(re.compile("n2.*standby.*follows.*in sync"))
    expect(rows.nth(2)).to_contain_text(re.compile("n3.*away.*not in sync"))
    expect(ui.main.get_by_role("button", name="Let it lead …")).to_have_count(1)
    # The overview is about the node that leads.
    ui.go("#/")
    expect(ui.main).to_contain_text("leveret@n1")
    cluster.start(third)
    cluster.wait_for_copies(3)
    ui.go("#/replication")
    expect(rows.nth(2)).to_contain_text(re.compile("n3.*follows.*in sync"))
    rows.nth(2).get_by_role("button", name="Let it lead …").click()
    ui.page.get_by_role("dialog").get_by_role("button", name="Let it lead").click()
    assert cluster.wait_for_leader(other_than=first) is third


def test_too_few_copies_are_told(new_ui: NewUi, cluster: LeveretCluster) -> None:
    for node in cluster.nodes[1:]:
        cluster.kill(node)
    first = cluster.nodes[0]
    declare(first)
    cluster.wait_until(lambda: first.report()["copies"] == 1)
    ui = new_ui(url=plain(first.http_url), address="#/replication")
    expect(ui.main.get_by_role("alert")).to_contain_text("Too few copies: 1 of 2 nodes")
    nodes = Management(first.http_url).request("GET", "nodes")
    assert [(node["name"], node["running"]) for node in nodes] == [
        ("leveret@n1", True), ("leveret@n2", False), ("leveret@n3", False),
    ]  # fmt: skip


def test_a_broker_alone(ui: Ui) -> None:
    ui.go("#/replication")
    expect(ui.main).to_contain_text("The broker is alone.")
