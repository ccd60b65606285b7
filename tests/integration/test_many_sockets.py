"""More clients than there are file descriptors: some are refused, the others go on, and so does the store."""

from __future__ import annotations

import resource
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import trustme

from tests.conformance.http_api import HttpApi
from tests.integration.waiting import wait_until
from tests.support.leveret_process import LeveretProcess
from tests.support.management import Management
from tests.support.transport import PROTOCOL_HEADER, parse_url
from tests.support.wire import Connection

#: File descriptors of the broker; half of them are for clients.
FILES = 120
LAZY = ("x-queue-mode", "S", "lazy")


@contextmanager
def greeted(url: str) -> Iterator[bool]:
    """Connect, and tell whether the broker answers."""
    address = parse_url(url)
    with socket.create_connection((address.host, address.port), 60) as client:
        try:
            client.sendall(PROTOCOL_HEADER)
            yield client.recv(1) != b""
        except ConnectionError:
            yield False


def test_the_store_goes_on_and_clients_may_come_again(tmp_path: Path) -> None:
    with LeveretProcess(tmp_path, settings={"storage.segment_size": 65_536}) as broker:
        resource.prlimit(broker.pid, resource.RLIMIT_NOFILE, (FILES, FILES))
        with Connection(broker.url, timeout=120) as connection:
            channel = connection.channel()
            channel.confirm_select()
            queues = [f"q{number}" for number in range(3)]
            with ExitStack() as others:
                refused = 0
                while not refused:
                    refused += not others.enter_context(greeted(broker.url))
                for queue in queues:
                    channel.queue_declare(queue, durable=True, arguments=[LAZY])
                    for number in range(200):
                        channel.publish("", queue, b"%d:" % number + bytes(1000), {"delivery_mode": 2})
                assert channel.wait_for_confirms(600) == [True] * 600
                for queue in queues:
                    channel.consume(queue)
                assert len(channel.deliveries(600)) == 600
            deadline = time.monotonic() + 60
            is_greeted = False
            while not is_greeted:
                assert time.monotonic() < deadline, "nobody may come any more"
                with greeted(broker.url) as is_greeted:
                    pass
        log = broker.log_text()
        assert log.count("refusing AMQP connections") <= 2
        assert "Too many open files" not in log


@pytest.mark.parametrize("octets", [b"", b"GET /api/overview HTTP/1.1\r\n"])
def test_clients_of_http_leave_descriptors_to_others(tmp_path: Path, octets: bytes) -> None:
    with LeveretProcess(tmp_path, settings={"storage.segment_size": 65_536}) as broker, ExitStack() as others:
        resource.prlimit(broker.pid, resource.RLIMIT_NOFILE, (FILES, FILES))
        for url in [broker.http_url, broker.prometheus_url] * FILES:
            address = urlsplit(url)
            client = others.enter_context(socket.create_connection((address.hostname, address.port), 60))
            client.sendall(octets)
        api = HttpApi(Management(broker.http_url))
        with Connection(broker.url, timeout=120) as connection:
            channel = connection.channel()
            channel.confirm_select()
            queues = [f"q{number}" for number in range(20)]
            for queue in queues:
                channel.queue_declare(queue, durable=True, arguments=[LAZY])
                channel.publish("", queue, bytes(1000), {"delivery_mode": 2})
            assert channel.wait_for_confirms(len(queues)) == [True] * len(queues)
            (node,) = api.get("nodes")
            assert 0 < node["sockets_used"] <= node["sockets_total"]
            assert not node["disk_free_alarm"]
        assert "alarm" not in broker.log_text()
        assert "Too many open files" not in broker.log_text()


def test_handshakes_that_do_not_end_leave_descriptors_to_others(tmp_path: Path) -> None:
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    certificate.private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "all.pem"))
    files = {f"ssl_options.{name}": tmp_path / "all.pem" for name in ("certfile", "keyfile")}
    settings = {"amqps_port": 0, "management_tls_port": 0, "ssl_handshake_timeout": "1h", **files}
    with LeveretProcess(tmp_path, settings=settings) as broker, ExitStack() as others:
        api = HttpApi(Management(broker.http_url))
        listeners = {each["protocol"]: each["port"] for each in api.get("overview")["listeners"]}
        resource.prlimit(broker.pid, resource.RLIMIT_NOFILE, (FILES, FILES))
        for port in [listeners["https"]] * FILES + [listeners["amqp/ssl"]] * FILES:
            others.enter_context(socket.create_connection(("127.0.0.1", port), 60))
        wait_until(lambda: "refusing AMQP connections" in broker.log_text(), "no room for a further handshake")
        assert "refusing HTTP connections" in broker.log_text()
        (node,) = api.get("nodes")
        assert 0 < node["sockets_used"] <= node["sockets_total"] + 1
        assert "Too many open files" not in broker.log_text()
