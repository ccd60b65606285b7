"""The list of connections, and the page of one."""

from __future__ import annotations

import re
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final
from urllib.parse import quote

import pika
import pytest
from playwright.sync_api import expect

from tests.integration.certificates import Authority
from tests.integration.program import running
from tests.support.leveret_process import LeveretProcess
from tests.support.management import Management
from tests.ui.clients import Client, Publishing
from tests.ui.conftest import Console
from tests.ui.pages import Ui

NewUi = Callable[..., Ui]
HOST: Final = "127.0.0.1"
VHOST: Final = "connected"
RECEIVING: Final = re.compile("From client: now [1-9]")


@pytest.fixture
def vhost(api: Management, broker: LeveretProcess) -> Iterator[str]:
    """A virtual host of the test's own, as a URL of the broker."""
    api.request("PUT", "vhosts", VHOST)
    yield f"{broker.url}/{VHOST}"
    api.request("DELETE", "vhosts", VHOST)


def name_of(client: Client, api: Management) -> str:
    """The name of a connection, as the broker made it."""
    socket = client.connection._impl._transport._sock  # what pika does not say
    port = socket.getsockname()[1]
    return next(str(row["name"]) for row in api.request("GET", "connections") if row["peer_port"] == port)


def page_of(name: str) -> str:
    return f"#/connections/{quote(name, safe='')}"


def test_who_is_connected(new_ui: NewUi, vhost: str, api: Management, console: Console) -> None:
    console.allow(404)
    ui = new_ui(address="#/connections")
    ui.choose("vhost", VHOST)
    expect(ui.main.get_by_text("No connections are open.")).to_be_visible()
    with Client(vhost, "orders-service") as client, Client(vhost) as other:
        client.connection.channel()
        ui.refresh()
        row = ui.rows().filter(has_text="orders-service")
        for text in (VHOST, "guest", "running", "none", "AMQP 0-9-1", "2", "Pika Python Client Library", "ago"):
            expect(row).to_contain_text(text)
        expect(row.get_by_text("running")).to_have_attribute("title", "normal operation")
        expect(ui.rows()).to_have_count(2)
        ui.main.get_by_role("columnheader", name="Channels").get_by_role("button").click()
        expect(ui.rows().first).to_contain_text("orders-service")
        ui.main.get_by_role("searchbox").fill(str(name_of(other, api)))
        expect(ui.rows()).to_have_count(1)
        expect(ui.rows().first).not_to_contain_text("orders-service")
        ui.main.get_by_role("searchbox").fill("Orders")
        expect(row).to_be_visible()
        expect(ui.rows()).to_have_count(1)
        ui.main.get_by_role("searchbox").fill("")
        ui.main.get_by_text("Columns").click()
        ui.main.get_by_label("Peer host").check()
        expect(row).to_contain_text("127.0.0.1", use_inner_text=True)
        ui.page.keyboard.press("Escape")
        row.get_by_role("link").click()
        expect(ui.main.get_by_role("heading", level=1)).to_contain_text("orders-service")
    ui.refresh()
    expect(ui.page.get_by_role("alert").filter(has_text="This object does not exist")).to_be_visible()


def test_what_a_connection_is(new_ui: NewUi, vhost: str, api: Management) -> None:
    said = {"deep": {"list": [1, "two"]}, "capabilities": {"basic.nack": True, "consumer_priorities": False}}
    with Client(vhost, "worker", said) as client:
        name = name_of(client, api)
        client.channel.confirm_delivery()
        with Publishing(lambda: client.channel.basic_publish("amq.direct", "nowhere", b"x" * 2048)):
            ui = new_ui(address=page_of(name))
            ui.choose("refresh", "1")
            data = ui.main.get_by_role("img", name="Data rates")
            expect(data).to_have_attribute("aria-label", RECEIVING, timeout=120_000)
        facts = ui.main.locator("dl.properties").first
        for text in ("PLAIN", "AMQP 0-9-1", "60s", "128 KiB", "2,047", VHOST, "running"):
            expect(facts).to_contain_text(text)
        expect(facts.get_by_role("link", name="guest")).to_have_attribute("href", "#/users/guest")
        client_facts = ui.main.locator("section").filter(has_text="product")
        for text in ('{"list":[1,"two"]}', "✓ basic.nack", "consumer_priorities: no", "Pika Python Client Library"):
            expect(client_facts).to_contain_text(text)
        channel = ui.main.get_by_role("link", name="(1)", exact=True)
        expect(channel).to_have_attribute("href", f"#/channels/{quote(f'{name} (1)', safe='()')}")
        expect(ui.rows().first).to_contain_text("C")
        channel.click()
        expect(ui.main.get_by_role("heading", level=1)).to_have_text(f"Channel {name} (1) worker")
        ui.go("#/channels")
        ui.main.get_by_role("searchbox").fill("work")
        expect(ui.rows()).to_have_count(1)
        expect(ui.rows()).to_contain_text("worker")


def test_closing_tells_the_client_why(new_ui: NewUi, vhost: str, api: Management, console: Console) -> None:
    console.allow(404)
    with Client(vhost) as client:
        name = name_of(client, api)
        ui = new_ui(address=page_of(name))
        reason = ui.main.get_by_label("Reason")
        reason.fill("é" * 101)
        ui.main.get_by_role("button", name="Close").click()
        expect(ui.main.get_by_text("This must be 200 bytes or less.")).to_be_visible()
        reason.fill("too busy, sorry 🐇")
        ui.refresh()
        expect(reason).to_have_value("too busy, sorry 🐇")
        ui.main.get_by_role("button", name="Close").click()
        dialog = ui.page.get_by_role("dialog", name="Close connection")
        expect(dialog).to_contain_text(name)
        ui.page.keyboard.press("Escape")
        expect(dialog).to_have_count(0)
        client.pump()
        ui.main.get_by_role("button", name="Close").click()
        dialog.get_by_role("button", name="Close").click()
        expect(ui.main.get_by_role("heading", level=1)).to_have_text("Connections")
        with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as closed:
            client.connection.process_data_events(5)
        assert (closed.value.reply_code, closed.value.reply_text) == (320, "CONNECTION_FORCED - too busy, sorry 🐇")


def test_how_a_connection_is_encrypted(new_ui: NewUi, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    server, client = authority.issue(HOST), authority.issue(common_name="the client", organization="Hare, Sons")
    given = {
        "certfile": server.certificate,
        "keyfile": server.key,
        "cacertfile": authority.file,
        "verify": "verify_peer",
    }
    arguments = [part for key, value in given.items() for part in ("--set", f"ssl_options.{key}={value}")]
    context = ssl.create_default_context(cafile=str(authority.file))
    context.load_cert_chain(client.certificate, client.key)
    with running(tmp_path, "--amqps-port", "0", *arguments) as program:
        port = int(program.addresses["amqps"].rpartition(":")[2])
        parameters = pika.ConnectionParameters(HOST, port, ssl_options=pika.SSLOptions(context, HOST))
        with pika.BlockingConnection(parameters):
            ui = new_ui(url=f"http://{program.addresses['management']}", address="#/connections")
            mark = ui.rows().locator("abbr").filter(has_text="TLS")
            expect(mark).to_have_attribute("title", re.compile(r"^TLSv1\.3, TLS_\w+$"))
            ui.rows().get_by_role("link").click()
            facts = ui.main.locator("dl.properties").first
            for text in ("TLSv1.3, TLS_", "Peer certificate", "CN=the client", "Valid"):
                expect(facts).to_contain_text(text)
