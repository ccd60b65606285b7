"""What waits for copies is let go when all have it, and never before the register knows who these are."""

from __future__ import annotations

import asyncio
import json
import random
import zlib
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from leveret.broker.replication.backlog import Backlog
from leveret.broker.replication.frames import Frame, unpack_frame
from leveret.broker.replication.link import Link, LinkError, Message, accept, answer, connect
from leveret.broker.replication.register import State
from leveret.broker.replication.shipping import ACKNOWLEDGEMENT, Limits, Shipping
from leveret.storage.disk.recording import Kind, Operation, Operations

SECRET = "secret"


class Judge:
    """Stands for who talks to the register."""

    def __init__(self) -> None:
        self.may_confirm = True
        self.has_lost = False
        self.answers = True
        self.changes: list[State] = []
        self.shipping: Shipping | None = None
        self.reached = asyncio.Event()
        self.reached.set()

    async def change(self, change: Callable[[State], State]) -> bool:
        """Change the state as soon as the register can be reached."""
        await self.reached.wait()
        assert self.shipping is not None
        if self.answers:
            self.changes.append(change(self.shipping.state))
            self.shipping.note_state(self.changes[-1])
        return self.answers


class Leader:
    """A leader's side, and nodes that follow it by real connections."""

    def __init__(
        self,
        root: Path,
        in_sync: tuple[str, ...],
        timeout: float = 0.2,
        min_copies: int = 1,
        sync_rate: int = 0,
        backlog: int = 1 << 20,
    ) -> None:
        self.judge = Judge()
        self.enough: list[bool] = []
        self.operations = Operations(on_sync=lambda: self.shipping.ship())
        state = State(1, "a", in_sync, {}, "s", ((1, 0),))
        frames = Backlog(root / "backlog", backlog)
        self.shipping = self.judge.shipping = Shipping(
            "a", root, 1, self.operations, frames, state, self.judge, Limits(timeout, min_copies, sync_rate),
            self.enough.append,
        )  # fmt: skip
        self.called: list[int] = []
        self.servers: list[asyncio.Server] = []
        self.links: list[Link] = []
        self.served = asyncio.Event()

    def do(self, number: int) -> None:
        """Do something that somebody waits for."""
        self.operations.add_sync(Operation(Kind.CREATE, f"f{number}"))
        self.shipping.when_copied(lambda: self.called.append(number))

    async def follow(self, name: str, **told: object) -> Link:
        """Connect a node that tells something more, and return its end."""

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            link = Link(reader, writer)
            wish = await accept(link, SECRET, False)
            answer(link, SECRET, wish, {"epoch": 1})
            await self.shipping.serve(link, {"node": name, "epoch": 1, "number": 0, "address": "h:1", **told})
            self.served.set()

        self.servers.append(await asyncio.start_server(serve, "127.0.0.1", 0))
        port = self.servers[-1].sockets[0].getsockname()[1]
        link, _ = await connect("127.0.0.1", port, SECRET, {})
        self.links.append(link)
        assert (await link.receive())[0] is Message.HELLO
        return link

    async def close(self) -> None:
        """Close everything."""
        for link in self.links:
            link.close()
        await self.shipping.close()
        if self.links:
            await self.served.wait()
        for server in self.servers:
            server.close()
            await server.wait_closed()
        await asyncio.sleep(0)


async def next_frame(link: Link) -> bytes:
    """Return the next frame; what a leader says of its last operation is left out."""
    while True:
        kind, octets = await link.receive()
        if kind is Message.FRAME:
            return octets


Lead = Callable[..., Leader]


@pytest.fixture
async def lead(tmp_path: Path) -> AsyncIterator[Lead]:
    """Make leaders, which are closed after the test."""
    made: list[Leader] = []

    def make(*arguments: Any, **options: Any) -> Leader:
        made.append(Leader(tmp_path, *arguments, **options))
        return made[-1]

    yield make
    for leader in made:
        await leader.close()


async def until(condition: Callable[[], object]) -> None:
    while not condition():  # noqa: ASYNC110 - nothing tells
        await asyncio.sleep(0.005)


async def test_a_leader_alone_waits_for_nobody(lead: Lead) -> None:
    leader = lead(("a",))
    leader.do(1)
    await until(lambda: leader.called == [1])


async def test_what_waits_is_let_go_when_all_have_acknowledged(lead: Lead) -> None:
    leader = lead(("a", "b"), timeout=30)
    link = await leader.follow("b")
    leader.do(1)
    leader.do(2)
    frame = unpack_frame(await next_frame(link))
    assert leader.called == []
    link.send(Message.ACKNOWLEDGEMENT, ACKNOWLEDGEMENT.pack(1))
    await until(lambda: leader.called == [1])
    while frame.last < 2:
        frame = unpack_frame(await next_frame(link))
    link.send(Message.ACKNOWLEDGEMENT, ACKNOWLEDGEMENT.pack(2))
    await until(lambda: leader.called == [1, 2])


async def test_what_is_synced_waits_for_no_later_operation(lead: Lead) -> None:
    leader = lead(("a", "b"), timeout=300)
    link = await leader.follow("b")
    leader.operations.add_sync(Operation(Kind.SYNC, "f"))
    assert unpack_frame(await next_frame(link)).last == 1
    # What the next sync is for is recorded already when this one has ended here.
    leader.operations.add(Operation(Kind.APPEND, "f", 0, b"later"))
    leader.shipping.when_copied(lambda: leader.called.append(1))
    assert leader.shipping.operation == 2
    link.send(Message.ACKNOWLEDGEMENT, ACKNOWLEDGEMENT.pack(1))
    await until(lambda: leader.called == [1])
    # All copies have it, so no acknowledgement will come that lets it go, nor does it wait for the next tick.
    leader.shipping.when_copied(lambda: leader.called.append(2))
    await asyncio.sleep(0)
    assert leader.called == [1, 2]


async def test_a_link_without_room_gets_later_what_it_has_no_room_for(lead: Lead) -> None:
    leader = lead(("a",), timeout=300, backlog=1 << 30)
    link = await leader.follow("b")
    leader.do(1)
    assert unpack_frame(await next_frame(link)).last == 1
    for number in range(32):
        leader.operations.add_sync(Operation(Kind.APPEND, "f", number << 20, bytes(1 << 20)))
    sending = leader.shipping.standbys["b"].link
    assert sending is not None
    assert sending.writer.transport.get_write_buffer_size() < 4 << 20
    assert [unpack_frame(await next_frame(link)).last for _ in range(32)] == [*range(2, 34)]


async def test_confirms_are_let_go_while_a_node_catches_up(lead: Lead, monkeypatch: pytest.MonkeyPatch) -> None:
    leader = lead(("a",), timeout=300, backlog=1 << 30)
    for number in range(2000):
        leader.operations.add_sync(Operation(Kind.APPEND, "f", 1000 * number, bytes(1000)))
    taken: Counter[int] = Counter()
    turns, after = 0, Backlog.after

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    def take(backlog: Backlog, number: int) -> Frame | None:
        taken[turns] += 1
        return after(backlog, number)

    monkeypatch.setattr(Backlog, "after", take)
    counting = asyncio.create_task(count_turns())
    link = await leader.follow("b")
    while unpack_frame(await next_frame(link)).last < 2000:
        pass
    counting.cancel()
    assert taken.total() == 2000
    # The link has room for all of them at once.
    assert max(taken.values()) < 100


async def test_who_does_not_acknowledge_leaves_the_register_first(lead: Lead) -> None:
    leader = lead(("a", "b"))
    leader.judge.reached.clear()
    leader.do(1)
    await asyncio.sleep(0.5)
    assert leader.called == []
    leader.judge.reached.set()
    await until(lambda: leader.called == [1])
    assert [state.in_sync for state in leader.judge.changes] == [("a",)]


async def test_a_leader_that_was_replaced_lets_nothing_go(lead: Lead) -> None:
    leader = lead(("a", "b"))
    leader.judge.answers = False
    leader.do(1)
    await asyncio.sleep(0.5)
    assert leader.called == []
    leader.judge.has_lost = True
    assert not await asyncio.to_thread(leader.shipping.wait, 30)
    assert leader.called == []


async def test_nothing_is_let_go_without_a_lease(lead: Lead) -> None:
    leader = lead(("a",))
    leader.judge.may_confirm = False
    leader.do(1)
    await asyncio.sleep(0.3)
    assert leader.called == []
    leader.judge.may_confirm = True
    await until(lambda: leader.called == [1])


async def test_nobody_waits_for_a_node_that_catches_up(lead: Lead) -> None:
    leader = lead(("a",), timeout=30)
    link = await leader.follow("b")
    leader.do(1)
    await asyncio.sleep(0.6)
    leader.do(2)
    # It has applied nothing of what was recorded more than a moment ago.
    link.send(Message.ACKNOWLEDGEMENT, ACKNOWLEDGEMENT.pack(0))
    link.send_json(Message.FIGURES, {"told": "after that"})
    await until(lambda: leader.shipping.standbys["b"].figures)
    assert not leader.shipping.is_entering("b")
    leader.do(3)
    await until(lambda: leader.called == [1, 2, 3])
    link.send(Message.ACKNOWLEDGEMENT, ACKNOWLEDGEMENT.pack(3))
    await until(lambda: leader.shipping.state.in_sync == ("a", "b"))


async def test_a_node_that_enters_is_waited_for_before_the_register_knows_it(lead: Lead) -> None:
    leader = lead(("a",), timeout=30, min_copies=2)
    link = await leader.follow("b")
    leader.do(1)
    await until(lambda: leader.enough == [False])
    assert leader.called == []
    leader.judge.reached.clear()
    await next_frame(link)
    link.send(Message.ACKNOWLEDGEMENT, ACKNOWLEDGEMENT.pack(1))
    await until(lambda: leader.shipping.is_entering("b"))
    leader.do(2)
    leader.judge.reached.set()
    await until(lambda: leader.called == [1])
    assert leader.judge.changes[-1].in_sync == ("a", "b")
    assert leader.judge.changes[-1].addresses == {"b": "h:1"}
    assert leader.enough == [False, True]
    await next_frame(link)
    assert leader.called == [1]
    link.send(Message.ACKNOWLEDGEMENT, ACKNOWLEDGEMENT.pack(2))
    await until(lambda: leader.called == [1, 2])
    assert leader.shipping.choose_successor() == "b"
    assert leader.shipping.choose_successor("c") == ""


async def test_who_leaves_while_the_register_is_asked_is_waited_for(lead: Lead) -> None:
    leader = lead(("a",), timeout=30)
    link = await leader.follow("b")
    leader.judge.reached.clear()
    link.send(Message.ACKNOWLEDGEMENT, ACKNOWLEDGEMENT.pack(0))
    await until(lambda: leader.shipping.is_entering("b"))
    link.close()
    await leader.served.wait()
    leader.do(1)
    await asyncio.sleep(0.3)
    # The register may say already that this node has everything.
    assert leader.called == []
    leader.judge.reached.set()
    await until(lambda: leader.judge.changes)
    await asyncio.sleep(0.1)
    assert leader.called == []
    assert await leader.shipping.drop("b", "it is gone")
    await until(lambda: leader.called == [1])


async def test_a_copy_is_sent_no_faster_than_asked(lead: Lead, tmp_path: Path) -> None:
    size, rate = 600_000, 400_000
    (tmp_path / "large").write_bytes(bytes(size))

    leader = lead(("a",), sync_rate=rate)
    link = await leader.follow("b", epoch=0)
    told = json.loads(await link.expect(Message.FILES))
    at = next(at for at, each in enumerate(told["files"]) if each[0] == "large")
    begun, received = asyncio.get_running_loop().time(), 0
    link.send_json(Message.FILES, [at])
    while received < size:
        received += len(await link.expect(Message.DATA))
    # The rate holds from when the copy began, and the last piece has waited for its turn.
    assert asyncio.get_running_loop().time() - begun > 0.8 * size / rate
    await link.expect(Message.END)
    await until(lambda: leader.shipping.standbys["b"].sent == size)


@pytest.mark.parametrize(
    ("kind", "octets"),
    [
        pytest.param(Message.ACKNOWLEDGEMENT, ACKNOWLEDGEMENT.pack(9), id="of what has not been sent"),
        pytest.param(Message.ACKNOWLEDGEMENT, b"1", id="cut off"),
        pytest.param(Message.FRAME, b"", id="a frame"),
        pytest.param(Message.FIGURES, b"[]", id="malformed figures"),
    ],
)
async def test_who_answers_what_cannot_be_is_closed_and_not_counted(lead: Lead, kind: Message, octets: bytes) -> None:
    leader = lead(("a", "b"), timeout=30)
    link = await leader.follow("b")
    leader.do(1)
    await next_frame(link)
    link.send(kind, octets)
    await leader.served.wait()
    await asyncio.sleep(0.1)
    assert leader.called == []
    assert leader.shipping.standbys["b"].acknowledged == 0


async def test_an_observer_is_not_waited_for(lead: Lead) -> None:
    leader = lead(("a", "b"), timeout=30)
    link = await leader.follow("b", is_observer=True)
    # It was a standby before: it leaves the set, in the register first.
    assert [state.in_sync for state in leader.judge.changes] == [("a",)]
    leader.do(1)
    await until(lambda: leader.called == [1])
    await next_frame(link)
    link.send(Message.ACKNOWLEDGEMENT, ACKNOWLEDGEMENT.pack(1))
    await until(lambda: leader.shipping.standbys["b"].acknowledged == 1)
    assert leader.shipping.state.in_sync == ("a",)
    assert leader.shipping.choose_successor() == ""


async def test_who_may_follow(lead: Lead) -> None:
    shipping = lead(("a", "b")).shipping
    assert shipping.refusal("b", "s", False) == shipping.refusal("c", "", True) == ""
    assert "another broker's" in shipping.refusal("c", "t", False)
    assert "another node is called a" in shipping.refusal("a", "s", False)
    shipping.note_state(replace(shipping.state, store=""))
    assert shipping.refusal("b", "s", False) == "the leader is starting"
    await shipping.close()


async def test_who_does_not_know_the_secret_is_refused_on_both_sides() -> None:
    refused: list[str] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link = Link(reader, writer)
        try:
            answer(link, "other", await accept(link, SECRET, False), {})
        except LinkError as error:
            refused.append(str(error))
        finally:
            link.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    for secret in ("wrong", SECRET):
        try:
            await connect("127.0.0.1", port, secret, {"node": "b"})
        except LinkError as error:
            refused.append(str(error))
    server.close()
    await asyncio.sleep(0)
    assert len(refused) == 3
    assert all("another replication.secret" in each for each in refused), refused


class CountingReader:
    """Counts the bytes of a connection that are read."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader
        self.count = 0

    async def readexactly(self, size: int) -> bytes:
        self.count += size
        return await self._reader.readexactly(size)


async def test_what_goes_to_observers_is_compressed(lead: Lead) -> None:
    leader = lead(("a",), timeout=30)
    standby, observer = await leader.follow("b"), await leader.follow("o", is_observer=True)
    body = bytes(100_000) + random.Random(1).randbytes(1000)
    leader.operations.add(Operation(Kind.APPEND, "f", 0, body))
    leader.do(1)
    counts = []
    for link in (standby, observer):
        counting = CountingReader(link.reader)
        link.reader = counting  # type: ignore[assignment]
        got = unpack_frame(await next_frame(link))
        assert next(got.operations()).octets == body
        counts.append(counting.count)
    assert counts[0] > 100_000
    assert counts[1] < 5_000


@pytest.mark.parametrize(
    ("packed", "reason"),
    [
        pytest.param(b"no zlib", "is damaged", id="damaged"),
        pytest.param(zlib.compress(bytes(1000))[:-3], "cut off", id="cut off"),
        pytest.param(zlib.compress(bytes(1_000_000)), "too long", id="too long"),
        pytest.param(b"", "cut off", id="empty"),
    ],
)
async def test_a_compressed_message_that_is_none_is_refused(packed: bytes, reason: str) -> None:
    refused: list[str] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await Link(reader, writer).receive(10_000)
        except LinkError as error:
            refused.append(str(error))
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname()[:2])
    Link(reader, writer).send(Message.PACKED, bytes((Message.DATA,)) + packed if packed else b"")
    assert await reader.read() == b""
    writer.close()
    server.close()
    assert reason in refused[0]
