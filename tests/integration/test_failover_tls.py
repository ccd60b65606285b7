"""A cluster with TLS wherever there can be: AMQPS and HTTPS through a standby, links, and an etcd with users."""

from __future__ import annotations

import json
import ssl
import urllib.request
from base64 import b64encode
from pathlib import Path

import pika
import pytest

from tests.integration.certificates import Authority
from tests.integration.waiting import wait_until
from tests.support.cluster import Etcd, Node, free_port

pytestmark = pytest.mark.etcd


def test_amqps_and_https_through_a_standby_and_an_etcd_with_users(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    issued = authority.issue("127.0.0.1", "localhost")
    with Etcd(tmp_path / "etcd", issued, authority.file) as etcd:
        etcd.add_user("root", "much of a secret")
        settings: dict[str, object] = {
            "replication.ssl_options.certfile": issued.certificate,
            "replication.ssl_options.keyfile": issued.key,
            "replication.ssl_options.cacertfile": authority.file,
            "ssl_options.certfile": issued.certificate,
            "ssl_options.keyfile": issued.key,
        }
        register = f"etcds://root:much%20of%20a%20secret@127.0.0.1:{etcd.port}/test"
        nodes = []
        for name in ("n1", "n2"):
            ports = {"amqps_port": free_port(), "management_tls_port": free_port()}
            nodes.append((Node(tmp_path / name, name, register, settings | ports), ports))
        try:
            for node, _ in nodes:
                node.start()
                node.wait_for_role()
            (first, _), (second, ports) = nodes
            assert (first.role, second.role) == ("leader", "standby")
            wait_until(lambda: first.metric("copies") == 2, "both are in sync")
            context = ssl.create_default_context(cafile=str(authority.file))
            with connect(ports["amqps_port"], context) as connection:
                channel = connection.channel()
                channel.queue_declare("q", durable=True)
                channel.confirm_delivery()
                channel.basic_publish("", "q", b"x" * 300_000, pika.BasicProperties(delivery_mode=2))
                # The leader sees that it is encrypted, and the client's own address.
                (seen,) = get(f"http://127.0.0.1:{second.management_port}/api/connections")
                assert (seen["ssl"], seen["peer_host"], seen["port"]) == (True, "127.0.0.1", ports["amqps_port"])
            (queue,) = get(f"https://127.0.0.1:{ports['management_tls_port']}/api/queues", context)
            assert queue["name"] == "q"
            first.kill()
            wait_until(lambda: second.role == "leader", "the other leads")
            with connect(ports["amqps_port"], context) as connection:
                assert connection.channel().queue_declare("q", passive=True).method.message_count == 1
        finally:
            for node, _ in nodes:
                node.kill()
        stranger = Node(tmp_path / "n3", "n3", f"etcds://root:guessed@127.0.0.1:{etcd.port}/test", settings)
        stranger.start()
        wait_until(lambda: "authentication failed" in stranger.log.read_text(), "etcd refuses its password")
        assert stranger.role == ""
        stranger.kill()


def connect(port: int, context: ssl.SSLContext) -> pika.BlockingConnection:
    options = pika.SSLOptions(context, "127.0.0.1")
    return pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port, ssl_options=options))


def get(url: str, context: ssl.SSLContext | None = None) -> list[dict[str, object]]:
    request = urllib.request.Request(url, headers={"authorization": f"Basic {b64encode(b'guest:guest').decode()}"})
    with urllib.request.urlopen(request, timeout=60, context=context) as response:
        found: list[dict[str, object]] = json.loads(response.read())
        return found
