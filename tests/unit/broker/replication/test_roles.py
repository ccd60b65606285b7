"""Nodes in one event loop, with a register in memory: who leads, who follows, and what each has."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from leveret.broker.replication import following
from leveret.broker.replication.applying import Applier
from leveret.broker.replication.copying import Received
from leveret.broker.replication.frames import Frame
from leveret.broker.replication.link import Link
from leveret.broker.replication.node_record import read_record
from leveret.broker.replication.plan import Plan, ReplicationError
from leveret.broker.replication.register import Reading, RegisterError
from leveret.broker.replication.roles import Member
from leveret.broker.replication.shipping import Limits, Shipping
from leveret.broker.testing.memory_register import MemoryHub, MemoryRegister
from leveret.storage.disk.recording import OWN_NAMES, Operations, RecordingFiles
from leveret.storage.engine import EngineOptions, StorageEngine
from leveret.storage.message import Envelope, Message

LEASE = 0.5
ENVELOPE = Envelope(b"\x00\x01q", b"\x00\x3c" + bytes(12), True)
OPTIONS = EngineOptions(segment_bytes=4096, ballast_bytes=0, disk_free_limit=0)


class Node:
    """A node whose broker is one store."""

    def __init__(self, root: Path, name: str, hub: MemoryHub, min_copies: int, is_observer: bool = False) -> None:
        self.root, self.name, self.hub = root / name, name, hub
        self.min_copies = min_copies
        self.is_observer = is_observer
        self.engine: StorageEngine | None = None
        self.shipping: Shipping | None = None
        self.confirmed: list[int] = []
        self.address = ""

    def start(self) -> None:
        """Begin to be a node."""
        listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{listening.getsockname()[1]}"
        limits = Limits(1.0, self.min_copies, 0)
        plan = Plan(self.name, self.root, self.address, "secret", LEASE, limits, 1 << 20, is_observer=self.is_observer)
        self.register = MemoryRegister(self.hub, self.name, LEASE)
        self.member = Member(plan, self.register, self)
        self.task = asyncio.create_task(self.member.run(listening))

    async def stop(self) -> None:
        """Hand over, if it leads, and end."""
        self.member.stop()
        await self.task

    async def lead(self, shipping: Shipping, operations: Operations, epoch: int) -> None:
        self.engine = StorageEngine(str(self.root), files=RecordingFiles(str(self.root), operations), options=OPTIONS)
        self.shipping = shipping

    async def stop_leading(self, is_clean: bool, reason: str) -> None:
        engine, self.engine = self.engine, None
        if engine is not None and is_clean:
            engine.close()
        elif engine is not None:
            engine.abandon()

    async def stand_by(self, leader: str, address: str) -> None:
        pass

    def set_enough_copies(self, enough: bool) -> None:
        pass

    async def forward(self, link: Link, wish: dict[str, Any]) -> None:
        pass

    async def take_backups(self, turn: str) -> None:
        pass

    def note_backup(self, node: str, line: bytes) -> None:
        pass

    def publish(self, number: int) -> None:
        """Store a number, and note when it may be confirmed."""
        assert self.engine is not None
        assert self.shipping is not None
        queue = next(iter(self.engine.queues.values()), None) or self.engine.create_queue(True, {"name": "q"})
        self.engine.store(queue).append([Message(ENVELOPE, b"%d" % number)], 10)
        self.engine.flush()
        self.engine.commit()
        self.shipping.when_copied(lambda: self.confirmed.append(number))

    def contents(self) -> dict[str, bytes]:
        """Return its files."""
        own = OWN_NAMES | {"trash", "diverged"}
        return {
            str(path.relative_to(self.root)): path.read_bytes()
            for path in self.root.rglob("*")
            if path.is_file()
            and path.relative_to(self.root).parts[0] not in own
            and not path.name.startswith("definitions.")
        }


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(0.01)


def run(root: Path, count: int, work: Callable[..., Coroutine[Any, Any, None]], min_copies: int = 2) -> None:
    """Run nodes of which the first leads and the others are in sync."""

    async def within() -> None:
        hub = MemoryHub()
        nodes = [Node(root, name, hub, min_copies) for name in "abc"[:count]]
        for node in nodes:
            node.start()
            await until(lambda: nodes[0].engine is not None)
        await until(lambda: nodes[0].member.state and len(nodes[0].member.state.in_sync) == count)
        try:
            await work(hub, *nodes)
        finally:
            for node in nodes:
                if not node.task.done():
                    await node.stop()

    asyncio.run(within())


def test_a_leader_that_cannot_reach_the_register_is_replaced_and_confirms_nothing(tmp_path: Path) -> None:
    async def work(hub: MemoryHub, a: Node, b: Node, c: Node) -> None:
        for number in range(20):
            a.publish(number)
        await until(lambda: len(a.confirmed) == 20)
        hub.cut_off.add("a")
        await until(lambda: b.engine or c.engine)
        leader, standby = (b, c) if b.engine else (c, b)
        a.publish(99)
        leader.publish(20)
        await until(lambda: leader.confirmed == [20])
        assert (len(a.confirmed), a.engine is not None) == (20, True)
        hub.cut_off.clear()
        await until(lambda: a.engine is None and a.member.following is not None)
        await until(lambda: leader.member.state and len(leader.member.state.in_sync) == 3)
        leader.publish(21)
        await until(lambda: leader.confirmed == [20, 21])
        await until(lambda: a.contents() == leader.contents() == standby.contents())
        assert 99 not in a.confirmed
        # What only it had is kept.
        assert any(b"99" in path.read_bytes() for path in (a.root / "diverged/1").rglob("*") if path.is_file())

    run(tmp_path, 3, work)


def test_a_clean_stop_hands_over_and_needs_no_copy_afterwards(tmp_path: Path) -> None:
    async def work(hub: MemoryHub, a: Node, b: Node) -> None:
        for number in range(5):
            a.publish(number)
        await a.stop()
        await until(lambda: b.engine)
        assert read_record(a.root).position[0] == 1
        a.start()
        await until(lambda: b.member.state and b.member.state.in_sync == ("b", "a"))
        b.publish(5)
        await until(lambda: b.confirmed == [5])
        await until(lambda: a.contents() == b.contents())
        assert not (a.root / "diverged").exists()
        assert await b.member.hand_over() == "a"
        await until(lambda: a.engine)
        assert a.member.state is not None
        assert a.member.state.epoch == 3
        with pytest.raises(ReplicationError, match="does not lead"):
            await b.member.hand_over()
        with pytest.raises(ReplicationError, match="c is not in sync"):
            await a.member.hand_over("c")

    run(tmp_path, 2, work)


def test_without_a_register_a_leader_goes_on_later(tmp_path: Path) -> None:
    async def work(hub: MemoryHub, a: Node, b: Node) -> None:
        hub.is_away = True
        await asyncio.sleep(2 * LEASE)
        a.publish(1)
        await asyncio.sleep(2 * LEASE)
        assert (a.confirmed, b.engine) == ([], None)
        # Else the first that finds it again would lead.
        hub.cut_off = {"b"}
        hub.is_away = False
        await until(lambda: a.confirmed == [1])
        assert (b.engine, a.member.role, b.member.role) == (None, "leader", "standby")

    run(tmp_path, 2, work)


def test_a_second_node_of_the_leaders_name_gives_up(tmp_path: Path) -> None:
    async def work(hub: MemoryHub, a: Node) -> None:
        twin = Node(tmp_path / "other", "a", hub, 1)
        twin.start()
        with pytest.raises(ReplicationError, match="another node is called a"):
            await twin.task
        assert a.engine is not None

    run(tmp_path, 1, work, min_copies=1)


def test_an_observer_is_not_waited_for_and_leads_by_hand_only(tmp_path: Path) -> None:
    async def work(hub: MemoryHub, a: Node, b: Node) -> None:
        observer = Node(tmp_path, "o", hub, 1, is_observer=True)
        observer.start()
        a.publish(1)
        await until(lambda: observer.contents() == a.contents() and observer.contents())
        assert a.member.state is not None
        assert a.member.state.in_sync == ("a", "b")
        assert (observer.member.role, observer.member.shipping) == ("observer", None)
        with pytest.raises(ReplicationError, match="a leads: stop it first"):
            await observer.member.promote(True)
        with pytest.raises(ReplicationError, match="o is not in sync"):
            await a.member.hand_over("o")
        # What is confirmed after its link has ended, the observer does not have.
        await observer.stop()
        a.publish(424242)
        await until(lambda: a.confirmed == [1, 424242])
        hub.cut_off |= {"a", "b"}
        await until(lambda: hub.expires < asyncio.get_running_loop().time())
        observer.start()
        await asyncio.sleep(2 * LEASE)
        assert observer.engine is None
        assert (await observer.member.promote(False))["operation"] == observer.member.following.number  # type: ignore[union-attr]
        await asyncio.sleep(2 * LEASE)
        assert observer.engine is None
        await observer.member.promote(True)
        await until(lambda: observer.engine)
        observer.publish(3)
        await until(lambda: observer.confirmed == [3])
        # The others follow it, and keep what it did not have aside.
        hub.cut_off.clear()
        await until(lambda: {*observer.member.state.in_sync} == {"o", "a", "b"})  # type: ignore[union-attr]
        await until(lambda: a.contents() == b.contents() == observer.contents())
        for each in (a, b):
            aside = each.root / "diverged/1"
            assert any(b"424242" in path.read_bytes() for path in aside.rglob("*") if path.is_file())
        await observer.stop()

    run(tmp_path, 2, work)


def test_a_standby_that_becomes_an_observer_leaves_the_set(tmp_path: Path) -> None:
    async def work(hub: MemoryHub, a: Node, b: Node) -> None:
        await b.stop()
        b.is_observer = True
        b.start()
        await until(lambda: a.member.state and a.member.state.in_sync == ("a",))
        a.publish(1)
        await until(lambda: a.contents() == b.contents())
        await a.stop()
        await asyncio.sleep(2 * LEASE)
        assert b.engine is None

    run(tmp_path, 2, work, min_copies=1)


def test_a_leader_that_gets_no_answers_of_the_register_is_replaced(tmp_path: Path) -> None:
    async def work(hub: MemoryHub, a: Node, b: Node, c: Node) -> None:
        renew = a.register.renew

        async def renew_unheard() -> bool:
            await renew()
            raise RegisterError("no answer")

        async def read_unheard() -> Reading:
            raise RegisterError("no answer")

        a.register.renew, a.register.read = renew_unheard, read_unheard  # type: ignore[method-assign]
        await until(lambda: b.engine or c.engine)
        a.publish(1)
        await asyncio.sleep(LEASE)
        assert a.confirmed == []

    run(tmp_path, 3, work)


def test_whoever_was_chosen_leads_also_if_it_is_slow(tmp_path: Path) -> None:
    async def work(hub: MemoryHub, a: Node, b: Node, c: Node) -> None:
        read = a.register.read

        async def read_slowly() -> Reading:
            await asyncio.sleep(LEASE / 3)
            return await read()

        async def hand_over(old: Node, new: Node) -> None:
            a.register.read = read_slowly if new is a else read  # type: ignore[method-assign]
            await until(lambda: old.shipping and all(each.link for each in old.shipping.standbys.values()))
            assert await old.member.hand_over(new.name) == new.name
            await until(lambda: old.engine is None)
            await until(lambda: a.engine or b.engine or c.engine)
            assert new.engine is not None

        for old, new in ((a, b), (b, a), (a, b), (b, a)):
            await hand_over(old, new)
        assert a.member.state is not None
        assert a.member.state.epoch == 5

    run(tmp_path, 3, work)


def test_what_a_newer_version_has_written_is_refused(tmp_path: Path) -> None:
    async def work(hub: MemoryHub, a: Node) -> None:
        await a.stop()
        assert hub.text is not None
        hub.text = hub.text.replace('"version": 1', '"version": 2')
        a.start()
        with pytest.raises(ReplicationError, match=r"written by a newer version .*upgrade this node"):
            await a.task
        assert '"version": 2' in hub.text

    run(tmp_path, 1, work, min_copies=1)


def test_a_standby_whose_disk_fails_trusts_nothing_that_it_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fails: list[OSError] = []
    reused: list[bool] = []

    class FailingApplier(Applier):
        def apply(self, frame: Frame) -> None:
            if fails:
                raise fails.pop()
            super().apply(frame)

    class ObservedCopy(Received):
        def __init__(self, root: Path, contents: bytes, reuses: bool = True) -> None:
            super().__init__(root, contents, reuses)
            reused.append(len(self.wanted) < len(self._files))

    monkeypatch.setattr(following, "Applier", FailingApplier)
    monkeypatch.setattr(following, "Received", ObservedCopy)

    async def work(hub: MemoryHub, a: Node, b: Node) -> None:
        for number in range(300):
            a.publish(number)
        await until(lambda: len(a.confirmed) == 300)
        reused.clear()
        fails.append(OSError(errno.EIO, "it cannot sync"))
        a.publish(300)
        await until(lambda: reused and a.member.state and len(a.member.state.in_sync) == 2)
        await until(lambda: len(a.confirmed) == 301)
        assert reused == [False]
        await until(lambda: a.contents() == b.contents())

    run(tmp_path, 2, work)
