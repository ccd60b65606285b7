"""Half a minute of a cluster under torture; and its ledger and its connections do what they are there for."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.cutting_proxy import CuttingProxy
from tests.torture.__main__ import main
from tests.torture.failovers import changes
from tests.torture.flows import Flow, body_of


@pytest.mark.etcd
@pytest.mark.timeout(900)
def test_half_a_minute(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--nodes", "3", "--seconds", "30", "--seed", "1", "--keep", str(tmp_path)]) == 0
    output = capsys.readouterr().out
    assert output.count("lost 0, changed 0, reordered 0") == 10


class Channel:
    """Takes the answers of a consumer."""

    def ack(self, delivery_tag: int) -> None:
        """Take one."""

    nack = ack


class Delivery:
    """What a consumer gets."""

    def __init__(self, number: int, *, redelivered: bool = False, body: bytes | None = None) -> None:
        self.body = body_of(number) if body is None else body
        self.delivery_tag = 1
        self.redelivered = redelivered


@pytest.mark.parametrize(
    ("deliveries", "wrong"),
    [
        ([Delivery(1), Delivery(2), Delivery(2, redelivered=True), Delivery(3)], ""),
        ([Delivery(1), Delivery(3)], "lost 1: [2]"),
        ([Delivery(1), Delivery(3), Delivery(2)], "reordered at priority 0: [2]"),
        ([Delivery(1), Delivery(2, body=body_of(2)[:-1] + b"?"), Delivery(3)], "changed 2"),
        ([Delivery(1), Delivery(2), Delivery(2), Delivery(3)], "twice, and not marked as redelivered: 2"),
        # What was not confirmed may come at any place.
        ([Delivery(1), Delivery(2), Delivery(9), Delivery(3)], ""),
    ],
)
def test_the_ledger_finds_what_is_wrong(deliveries: list[Any], wrong: str) -> None:
    flow, channel = Flow("q", [], 1), Channel()
    flow.confirmed |= {1, 2, 3}
    for delivery in deliveries:
        flow._see(channel, delivery)  # type: ignore[arg-type]
    assert flow.check() == ([wrong] if wrong else [])


def test_changes_of_the_leader_are_counted() -> None:
    assert changes({1: ["a"], 2: ["b"], 3: ["b"], 5: ["a"]}) == 2


@pytest.fixture
def linked() -> Any:
    """Return a proxy, and a function that connects as a node that follows `leader` and returns both ends."""
    with CuttingProxy() as proxy, socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(30)
        port = proxy.lead_to("leader", listening.getsockname()[1])
        opened: list[socket.socket] = []

        def connect() -> tuple[socket.socket, socket.socket]:
            node = socket.create_connection(("127.0.0.1", port), 30)
            leader, _ = listening.accept()
            opened.extend((node, leader))
            hello = b'{"purpose": "follow", "node": "standby"}'
            node.sendall(hello)
            leader.settimeout(30)
            assert leader.recv(100) == hello
            return node, leader

        yield proxy, connect
        for each in opened:
            each.close()


def test_a_cut_holds_back_until_it_is_healed(
    linked: tuple[CuttingProxy, Callable[[], tuple[socket.socket, socket.socket]]],
) -> None:
    proxy, connect = linked
    node, leader = connect()
    proxy.cut("leader", "standby", one_way=True)
    leader.sendall(b"frame")
    node.sendall(b"acknowledgement")
    assert leader.recv(100) == b"acknowledgement"
    node.settimeout(0.2)
    with pytest.raises(TimeoutError):
        node.recv(100)
    proxy.heal()
    node.settimeout(30)
    assert node.recv(100) == b"frame"
    proxy.cut("standby", "leader")
    proxy.heal(reset=True)
    assert node.recv(100) == leader.recv(100) == b""


def test_what_a_leader_sends_is_damaged(
    linked: tuple[CuttingProxy, Callable[[], tuple[socket.socket, socket.socket]]],
) -> None:
    proxy, connect = linked
    node, leader = connect()
    proxy.damage("leader", "standby")
    leader.sendall(bytes(9))
    assert node.recv(9) == bytes([0, 0, 0, 0, 0x10, 0, 0, 0, 0])
    assert proxy.damages == 1
