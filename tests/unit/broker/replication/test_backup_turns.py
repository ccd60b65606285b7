"""Which node of a cluster takes the backups."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from leveret.broker.replication import backup_turns
from leveret.broker.replication.backup_turns import BackupTurns
from leveret.broker.replication.link import Message
from leveret.broker.replication.node_record import read_hold, write_hold
from leveret.broker.replication.plan import Host
from leveret.broker.replication.shipping import Shipping
from leveret.storage.clock import Clock

PLACE = "s3://backups"


class Cluster:
    """What a leader `l` has of other nodes; it is the host and the link of each of them, too."""

    def __init__(self, root: Path, place: str = PLACE) -> None:
        self.standbys: dict[str, Any] = {}
        self.state = SimpleNamespace(in_sync=("l",), epoch=7)
        self.hold = 0
        self.on_backup: Any = None
        self.said: list[tuple[str, str]] = []
        self.noted: list[tuple[str, bytes]] = []
        self.time = 0.0
        self.turns = BackupTurns("l", root, place, cast(Shipping, self), cast(Host, self))
        self.turns._since = 0
        self.turns._loop = cast(Any, SimpleNamespace(time=lambda: self.time, run_in_executor=done_at_once))

    def add(self, name: str, place: str = PLACE, is_observer: bool = False, doing: str = "frames") -> None:
        """Connect a node; one that is no observer is in sync."""
        link = SimpleNamespace(send_json=lambda kind, told: self._send(name, kind, told["turn"]))
        self.standbys[name] = SimpleNamespace(
            name=name, link=link, doing=doing, is_observer=is_observer, backups=place
        )  # fmt: skip
        self.state.in_sync = (*self.state.in_sync, *(() if is_observer else (name,)))

    def _send(self, name: str, kind: Message, turn: str) -> None:
        assert kind is Message.BACKUP
        self.said.append((name, turn))

    async def take_backups(self, turn: str) -> None:
        self.said.append(("l", turn))

    def note_backup(self, node: str, line: bytes) -> None:
        self.noted.append((node, line))

    async def looked(self, seconds: float = 0) -> list[tuple[str, str]]:
        """Return what nodes are told when it is looked some seconds later."""
        self.time += seconds
        self.said.clear()
        await self.turns.look()
        return [*self.said]

    def reports(self, name: str, **told: object) -> None:
        self.turns.note(name, json.dumps(told).encode())


def done_at_once(_: None, function: Callable[..., object], *arguments: object) -> asyncio.Future[object]:
    done = asyncio.get_event_loop().create_future()
    done.set_result(function(*arguments))
    return done


def run(work: Any) -> None:
    async def within() -> None:
        await work

    asyncio.run(within())


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """What is kept for the next backup, as the leader notes it."""
    found: list[int] = []
    monkeypatch.setattr(backup_turns, "write_hold", lambda root, since: found.append(since))
    return found


def test_the_order(tmp_path: Path) -> None:
    async def work() -> None:
        cluster = Cluster(tmp_path)
        # A standby may connect soon.
        assert await cluster.looked(9) == []
        cluster.add("c", doing="copy")
        cluster.add("d", place="s3://other")
        assert await cluster.looked(2) == [("l", "7/1/l")]
        cluster.add("b")
        assert await cluster.looked() == [("l", ""), ("b", "7/2/b")]
        # It goes on, whoever else there is, but for observers.
        cluster.add("a")
        assert await cluster.looked(100) == []
        cluster.add("o", is_observer=True)
        assert await cluster.looked() == [("b", ""), ("o", "7/3/o")]
        cluster.standbys["o"].link = None
        assert await cluster.looked() == [("a", "7/4/a")]
        # It was away for a moment.
        cluster.add("a")
        assert (await cluster.looked())[-1] == ("a", "7/5/a")
        cluster.state.in_sync = ("l", "b")
        assert (await cluster.looked())[-1] == ("b", "7/6/b")
        cluster.state.in_sync = ("l",)
        assert await cluster.looked(9) == []
        assert (await cluster.looked(2))[-1] == ("l", "7/7/l")
        await cluster.turns.end()
        assert cluster.said[-1] == ("l", "")

    run(work())


def test_a_leader_whose_directory_is_its_own_does_not_wait(tmp_path: Path) -> None:
    async def work() -> None:
        cluster = Cluster(tmp_path, "")
        cluster.add("a", place="")
        assert await cluster.looked() == [("l", "7/1/l")]

    run(work())


@pytest.mark.parametrize("before", [0, 5])
def test_what_is_dropped_is_kept_from_the_last_backup_on_or_before_the_first_is_taken(
    tmp_path: Path, before: int
) -> None:
    async def work() -> None:
        cluster = Cluster(tmp_path)
        cluster.add("a")
        if before:
            # As the leader before has told.
            write_hold(tmp_path, before)
        began = Clock().now()
        assert await cluster.looked() == [("a", "7/1/a")]
        assert cluster.hold == read_hold(tmp_path)
        assert cluster.hold == before if before else cluster.hold >= began

    run(work())


def test_who_fails_rests_and_only_the_taker_is_heard(tmp_path: Path, held: list[int]) -> None:
    async def work() -> None:
        cluster = Cluster(tmp_path)
        cluster.add("a")
        cluster.add("b")
        assert await cluster.looked() == [("a", "7/1/a")]
        cluster.reports("b", error="not its turn", hold=5)
        assert cluster.noted == []
        cluster.reports("a", time=1, hold=10)
        cluster.reports("a", time=2, hold=10)
        # At first from when it was told, then from its backup on.
        assert (held[1:], cluster.hold) == ([10], 10)
        for _ in range(2):
            cluster.reports("a", error="away")
        cluster.reports("a", time=3, hold=20)
        for number in range(3):
            assert await cluster.looked() == []
            cluster.reports("a", error=f"away {number}")
        assert await cluster.looked() == [("a", ""), ("b", "7/2/b")]
        for _ in range(3):
            cluster.reports("b", error="away")
        assert await cluster.looked(11) == [("b", ""), ("l", "7/3/l")]
        # Where all fail the leader stays, and the others are tried again after a while.
        for _ in range(9):
            cluster.reports("l", error="away")
        assert await cluster.looked(100) == []
        assert (await cluster.looked(600))[-1] == ("a", "7/4/a")
        # The leader's own program holds in its directory itself.
        assert held[1:] == [10, 20]

    run(work())
