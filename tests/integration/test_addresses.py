"""Where the broker listens: IPv6, several addresses, several ports, none."""

from __future__ import annotations

import socket
import urllib.request
from pathlib import Path
from typing import Any

import pika
import pytest

from leveret import LeveretThread
from tests.integration.program import Program, run, running
from tests.integration.waiting import wait_until
from tests.support.leveretctl import Leveretctl
from tests.support.management import Management


def addresses(program: Program, name: str) -> list[str]:
    return program.addresses[name].split(",")


def declare(address: str) -> None:
    with pika.BlockingConnection(pika.URLParameters(f"amqp://guest:guest@{address}/%2F")) as connection:
        connection.channel().queue_declare("q", exclusive=True)


def names(program: Program, address: str) -> list[str]:
    """What the connections are called while one is open to an address."""
    management = Management(f"http://guest:guest@{addresses(program, 'management')[0]}")
    with pika.BlockingConnection(pika.URLParameters(f"amqp://guest:guest@{address}/%2F")):
        connections: list[Any] = management.request("GET", "connections")
    return [each["name"] for each in connections]


def scrape(address: str) -> bytes:
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=120) as answer:
        text: bytes = answer.read()
    return text


def test_ipv6_alone(tmp_path: Path) -> None:
    with socket.socket() as held:
        # While it is held here, no other program can be the one that answers at this port of 127.0.0.1.
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
        with running(tmp_path, "--host", "::1", "--port", str(port)) as program:
            (amqp,), (prometheus,) = addresses(program, "amqp"), addresses(program, "prometheus")
            assert amqp == f"[::1]:{port}"
            (name,) = names(program, amqp)
            assert name.startswith("[::1]:")
            assert name.endswith(f" -> {amqp}")
            assert b"leveret_queue" in scrape(prometheus) or b"rabbitmq_" in scrape(prometheus)
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", port), timeout=120)
            ctl = Leveretctl(f"http://guest:guest@{addresses(program, 'management')[0]}")
            ran = ctl("list_connections", "name", "peer_host", "-q")
            assert (ran.status, ran.err) == (0, "")
            ran = ctl("listeners", "-q")
            assert f"Interface: [::1], port: {port}" in ran.out


def test_all_of_ipv6_is_all_of_ipv4_too(tmp_path: Path) -> None:
    """IPv4 addresses look like such everywhere, and guest is at home with both."""
    with running(tmp_path, "--host", "::") as program:
        port = addresses(program, "amqp")[0].rsplit(":", 1)[1]
        assert addresses(program, "amqp") == [f"[::]:{port}"]
        management_port = addresses(program, "management")[0].rsplit(":", 1)[1]
        management = Management(f"http://guest:guest@127.0.0.1:{management_port}")
        for host in ("127.0.0.1", "[::1]"):
            with pika.BlockingConnection(pika.URLParameters(f"amqp://guest:guest@{host}:{port}/%2F")):
                wait_until(lambda: bool(management.request("GET", "connections")), "the connection is listed")
                (shown,) = management.request("GET", "connections")
            assert shown["name"].startswith(f"{host}:")
            assert shown["name"].endswith(f" -> {host}:{port}")
            assert shown["peer_host"] == host.strip("[]")
        for host in ("127.0.0.1", "[::1]"):
            api = Management(f"http://guest:guest@{host}:{management_port}")
            assert api.request("GET", "whoami")["name"] == "guest"


def test_several_addresses_share_a_free_port(tmp_path: Path) -> None:
    with running(tmp_path, "--host", "127.0.0.1,::1", "--host", "127.0.0.1,::1") as program:
        for name in ("amqp", "management", "prometheus"):
            ipv4, ipv6 = addresses(program, name)
            port = ipv4.removeprefix("127.0.0.1:")
            assert ipv6 == f"[::1]:{port}"
        for address in addresses(program, "amqp"):
            declare(address)


def test_listeners_as_rabbitmq_has_them(tmp_path: Path) -> None:
    config = tmp_path / "leveret.yaml"
    config.write_text("listeners:\n  tcp:\n    1: 127.0.0.1:0\n    2: ::1:0\n    default: 0\n")
    with running(tmp_path, "--config", str(config)) as program:
        first, second, third = addresses(program, "amqp")
        assert first.startswith("127.0.0.1:")
        assert second.startswith("[::1]:")
        assert third.startswith("127.0.0.1:")
        for address in (first, second, third):
            declare(address)
        shown = Management(program.http_url).request("GET", "overview")["listeners"]
        ports = [each["port"] for each in shown if each["protocol"] == "amqp"]
        assert sorted(ports) == sorted(int(each.rsplit(":", 1)[1]) for each in (first, second, third))


def test_no_plain_listener(tmp_path: Path) -> None:
    with running(tmp_path, "--set", "listeners.tcp=none") as program:
        assert list(program.addresses) == ["management", "prometheus", "data"]


def test_an_address_that_is_not_of_this_machine(tmp_path: Path) -> None:
    refused = run("--set", "listeners.tcp=[2001:db8::1]:5672", "--data-dir", str(tmp_path / "data"))
    assert (refused.returncode, refused.stderr) == (
        1,
        "leveret: cannot listen on [2001:db8::1]:5672: Cannot assign requested address; choose another listeners.tcp\n",
    )


def test_a_host_name_that_does_not_exist(tmp_path: Path) -> None:
    refused = run("--host", "no-such-host.invalid", "--data-dir", str(tmp_path / "data"))
    assert refused.returncode == 1
    assert refused.stderr.startswith("leveret: cannot listen on no-such-host.invalid:5672: ")
    assert refused.stderr.count("\n") == 1


def test_embedded_on_ipv6() -> None:
    with LeveretThread(options={"host": "::1"}) as broker:
        assert broker.url.startswith("amqp://guest:guest@[::1]:")
        declare(broker.url.removeprefix("amqp://guest:guest@").removesuffix("/%2F"))
        assert Management(broker.http_url).request("GET", "whoami")["name"] == "guest"
