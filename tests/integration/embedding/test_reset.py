"""A broker that is reset is as good as a new one, at the same URL."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pika
import pytest
from pika.exceptions import ConnectionClosedByBroker

from leveret import Leveret, LeveretThread, clean_broker
from leveret.broker.config.config_errors import ConfigError, DefinitionsError
from leveret.broker.embedded_thread import stop_clean_brokers
from leveret.broker.testing.environment import NotRunningError
from leveret.protocol.constants import PROTOCOL_HEADER
from tests.integration.embedding.clients import channel_of, publish_durably, ready
from tests.integration.waiting import wait_until
from tests.support.management import Management

DAY = 86_400
SHOP = {"vhosts": [{"name": "shop"}], "queues": [{"name": "orders", "vhost": "shop", "durable": True, "arguments": {}}]}


def leave_traces(broker: LeveretThread) -> None:
    """Declare and define one of everything, publish, and let a day pass."""
    http = Management(broker.http_url)
    with channel_of(broker.url) as channel:
        channel.queue_declare("q", durable=True)
        channel.exchange_declare("x", "x-delayed-message", durable=True, arguments={"x-delayed-type": "fanout"})
        channel.queue_bind("q", "x")
        publish_durably(channel, "q", b"left")
        channel.basic_publish("x", "", b"waiting", pika.BasicProperties(headers={"x-delay": 5 * DAY * 1000}))
    http.request("PUT", "vhosts", "other")
    http.request("PUT", "users", "ann", body={"password": "ann", "tags": ""})
    http.request("PUT", "policies", "/", "p", body={"pattern": ".*", "definition": {"max-length": 5}})
    http.request("PUT", "global-parameters", "g", body={"value": 1})
    http.request("PUT", "vhost-limits", "/", "max-queues", body={"value": 1})
    http.request("PUT", "permissions", "/", "guest", body={"configure": "", "write": "", "read": ""})
    broker.clock.advance(DAY)


def contents(broker: LeveretThread) -> dict[str, Any]:
    """Return what differs between brokers by what has happened to them."""
    http = Management(broker.http_url)
    exported = http.request("GET", "definitions")
    # Made at random: the salt of the password, and the cluster's name of itself.
    for user in exported["users"]:
        user["password_hash"] = ""
    for parameter in exported["global_parameters"]:
        if parameter["name"] == "internal_cluster_id":
            parameter["value"] = ""
    lists = {name: http.request("GET", name) for name in ("queues", "connections", "channels", "consumers", "losses")}
    overview = http.request("GET", "overview")
    kept = {name: overview[name] for name in ("message_stats", "queue_totals", "object_totals", "churn_rates")}
    lists["losses"] = {"rows": lists["losses"].get("objects", [])} if isinstance(lists["losses"], dict) else []
    files = sorted(str(each.relative_to(broker.data_dir)) for each in broker.data_dir.glob("q/*"))
    return {"definitions": exported, **lists, "overview": kept, "files": files}


def test_nothing_is_left(broker: LeveretThread) -> None:
    before, url, folder = contents(broker), broker.url, broker.data_dir
    leave_traces(broker)
    assert contents(broker) != before
    broker.reset()
    assert (broker.url, contents(broker)) == (url, before)
    assert abs(broker.clock.now().timestamp() - time.time()) < 60
    broker.reset()
    wait_until(lambda: not folder.exists(), "the first data directory is removed")
    assert len(list(broker.data_dir.parent.iterdir())) <= 3


def test_clients_are_told(broker: LeveretThread) -> None:
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as old:
        channel = old.channel()
        channel.queue_declare("exclusive", exclusive=True)
        broker.reset()
        with pytest.raises(ConnectionClosedByBroker, match=r"320.*shutdown"):
            channel.queue_declare("q")
        with channel_of(broker.url) as new:
            new.queue_declare("exclusive")


def test_clients_that_connect_meanwhile_are_served(broker: LeveretThread) -> None:
    """The port listens all the time: no client is ever refused."""
    url = urlsplit(broker.url)
    stop = threading.Event()
    refused: list[OSError] = []
    served: list[int] = []

    def connect() -> None:
        while not stop.is_set():
            try:
                with socket.create_connection((url.hostname, url.port), timeout=60) as client:
                    client.sendall(PROTOCOL_HEADER)
                    served.extend(client.recv(1))
            except ConnectionRefusedError as error:
                refused.append(error)
            except OSError:
                # The broker was reset after it had accepted the connection.
                pass

    clients = [threading.Thread(target=connect) for _ in range(3)]
    for client in clients:
        client.start()
    for _ in range(50):
        broker.reset()
    before = len(served)
    wait_until(lambda: len(served) > before + 3, "clients are served")
    stop.set()
    for client in clients:
        client.join()
    assert not refused


def test_first_definitions_and_options_come_back() -> None:
    with LeveretThread(options={"default_user": "ann", "default_pass": "p"}, definitions=SHOP) as broker:
        shop = broker.url.rpartition("/")[0] + "/shop"
        http = Management(broker.http_url)
        http.request("PUT", "permissions", "shop", "ann", body={"configure": ".*", "write": ".*", "read": ".*"})
        with channel_of(shop) as channel:
            publish_durably(channel, "orders", b"1")
            channel.queue_declare("more", durable=True)
        broker.reset(options={"channel_max": 7}, definitions={})
        assert "shop" not in [each["name"] for each in http.request("GET", "vhosts")]
        assert "ann" in broker.url
        with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
            assert connection._impl.params.channel_max == 7
        broker.reset()
        assert [each["name"] for each in http.request("GET", "queues")] == ["orders"]


def test_definitions_from_a_file(tmp_path: Path, broker: LeveretThread) -> None:
    file = tmp_path / "definitions.json"
    file.write_text('{"queues": [{"name": "orders", "vhost": "/", "durable": true, "arguments": {}}]}')
    broker.reset(definitions=file)
    with channel_of(broker.url) as channel:
        assert ready(channel, "orders") == 0


def test_what_is_wrong_changes_nothing_or_can_be_put_right(broker: LeveretThread) -> None:
    with channel_of(broker.url) as channel:
        channel.queue_declare("q")
        with pytest.raises(ConfigError, match="hartbeat"):
            broker.reset(options={"hartbeat": 1})
        assert ready(channel, "q") == 0
    url = broker.url
    with pytest.raises(DefinitionsError, match="nowhere"):
        broker.reset(definitions={"queues": [{"name": "q", "vhost": "nowhere"}]})
    with pytest.raises(NotRunningError):
        broker.clock.now()
    broker.reset()
    with channel_of(url) as channel:
        channel.queue_declare("q")


def test_what_does_not_run_cannot_be_reset() -> None:
    broker = LeveretThread()
    for call in (broker.reset, broker.kill, broker.restart, broker.clock.now, lambda: broker.clock.advance(1)):
        with pytest.raises(NotRunningError, match=r"not running: start\(\) it"):
            call()
    with broker:
        pass
    with pytest.raises(NotRunningError):
        broker.reset()
    with broker, channel_of(broker.url) as channel:
        channel.queue_declare("it can be started again")


def test_a_given_directory_is_emptied_of_what_is_the_brokers(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with LeveretThread(tmp_path) as broker:
        with channel_of(broker.url) as channel:
            channel.queue_declare("q", durable=True)
            publish_durably(channel, "q", b"1")
        assert broker.data_dir == tmp_path
        broker.reset()
        with channel_of(broker.url) as channel:
            assert channel.queue_declare("q", durable=True).method.message_count == 0
        assert (tmp_path / "notes.txt").read_text() == "mine"
        assert len(list(tmp_path.glob("q/*"))) == 1


async def test_in_the_loop_of_a_program() -> None:
    """With the event loop of asyncio, which pytest-asyncio uses."""
    async with Leveret() as broker:
        url = broker.url
        for _ in range(20):
            await broker.reset()
        await broker.kill()
        with pytest.raises(NotRunningError):
            await broker.clock.advance(1)
        await broker.start()
        await broker.clock.advance(60)
        assert broker.url == url
    with pytest.raises(NotRunningError):
        await broker.reset()


def test_two_at_once_are_two_brokers() -> None:
    with clean_broker() as one, clean_broker() as other:
        assert one.url != other.url
    with clean_broker() as again:
        assert again is one


def test_many_resets_leave_nothing_open() -> None:
    """Nor do they start threads: those of the broker stay the same."""
    stop_clean_brokers()
    with clean_broker() as broker:
        _use_and_reset(broker)
        threads, descriptors = _threads(), _open_descriptors(broker)
        for _ in range(50):
            _use_and_reset(broker)
        wait_until(lambda: _open_descriptors(broker) <= descriptors, "no more is open than after the first reset")
        assert _threads() == threads


def _use_and_reset(broker: LeveretThread) -> None:
    with channel_of(broker.url) as channel:
        channel.queue_declare("q", durable=True)
        publish_durably(channel, "q", b"1")
    broker.reset()


def _threads() -> set[threading.Thread]:
    """Return all but the one that syncs, which a broker starts when it has something to sync."""
    return {each for each in threading.enumerate() if each.name != "committer"}


def _open_descriptors(broker: LeveretThread) -> int:
    """Return how many there are, without files of the data directory in use: the broker opens them as it needs them."""
    links = []
    for each in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):
            links.append(each.readlink())
    return sum(not each.is_relative_to(broker.data_dir) for each in links)
