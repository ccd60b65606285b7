"""A node that follows applies nothing of what a leader of this epoch would not send, and closes the link."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import cast

import pytest

from leveret.broker.replication.backlog import Backlog
from leveret.broker.replication.following import Following
from leveret.broker.replication.frames import FrameError, pack_frames
from leveret.broker.replication.link import Link, LinkError, Message, Refused, accept, answer
from leveret.broker.replication.node_record import NodeRecord
from leveret.broker.replication.plan import Host, Plan
from leveret.broker.replication.shipping import ACKNOWLEDGEMENT, Limits
from leveret.storage.disk.recording import Kind, Operation
from leveret.storage.format import FORMAT_VERSION

SECRET = "secret"
EPOCH = 3
# It takes no backups, and so its host is not asked for anything.
NO_HOST = cast(Host, None)


def frame(first: int, epoch: int = EPOCH) -> bytes:
    """Return a frame with one operation, which makes a directory of that number."""
    (packed,) = pack_frames(epoch, first, [Operation(Kind.MAKE_DIRECTORY, f"d{first}")])
    return packed.octets


GOOD = (Message.FRAME, frame(1))
DAMAGED = bytearray(frame(2))
DAMAGED[-1] ^= 1
CUT_OFF = frame(2)[:-1]
NEWER = bytearray(frame(2))
NEWER[4] = 99


@pytest.mark.parametrize(
    ("sent", "expected", "reason"),
    [
        pytest.param((Message.FRAME, bytes(DAMAGED)), FrameError, "its checksum is wrong", id="damaged"),
        pytest.param((Message.FRAME, CUT_OFF), FrameError, "its length is wrong", id="cut off"),
        pytest.param((Message.FRAME, bytes(NEWER)), FrameError, "it has version 99", id="newer"),
        pytest.param((Message.FRAME, b"x" * 40), FrameError, "does not begin as a frame does", id="no frame"),
        pytest.param((Message.FRAME, frame(3)), FrameError, "begins with operation 3 after 1", id="one is left out"),
        pytest.param((Message.FRAME, frame(1)), FrameError, "begins with operation 1 after 1", id="again"),
        pytest.param((Message.FRAME, frame(2, EPOCH + 1)), FrameError, "it is of epoch 4, and 3 leads", id="epoch"),
        pytest.param((Message.DATA, b"x"), LinkError, "DATA came instead of FRAME", id="another message"),
        pytest.param((Message.LAG, b"{}"), LinkError, "malformed", id="malformed lag"),
    ],
)
def test_what_is_wrong_is_not_applied(
    tmp_path: Path, sent: tuple[Message, bytes], expected: type[Exception], reason: str
) -> None:
    async def serve(link: Link) -> None:
        link.send_json(Message.HELLO, {"epoch": EPOCH, "continue": 0})
        for kind, octets in (GOOD, sent, (Message.FRAME, frame(2))):
            link.send(kind, octets)
        await link.drain()

    with pytest.raises(expected, match=reason):
        follow(tmp_path, serve, {"epoch": EPOCH, "format": FORMAT_VERSION})
    # What came before is there, and nothing that came with it or after it.
    assert sorted(path.name for path in tmp_path.glob("data/d*")) == ["d1"]


@pytest.mark.parametrize(
    ("told", "reason"),
    [
        pytest.param({"refused": "the leader is starting"}, "the leader is starting", id="refused"),
        pytest.param({"epoch": EPOCH + 1, "format": FORMAT_VERSION}, "it leads epoch 4", id="epoch"),
        pytest.param({"epoch": EPOCH, "format": FORMAT_VERSION + 1}, "upgrade this node", id="newer data directory"),
    ],
)
def test_a_leader_that_is_none_is_not_followed(tmp_path: Path, told: dict[str, object], reason: str) -> None:
    async def serve(link: Link) -> None:
        link.send_json(Message.HELLO, {"epoch": EPOCH, "continue": 0})
        link.send(*GOOD)
        await link.drain()

    with pytest.raises(LinkError, match=reason) as raised:
        follow(tmp_path, serve, told)
    assert isinstance(raised.value, Refused) == ("refused" in told)
    assert not [*tmp_path.glob("data/d*")]


def test_what_is_left_of_a_link_is_refused_once_a_newer_epoch_has_begun(tmp_path: Path) -> None:
    followed: list[Following] = []

    async def serve(link: Link) -> None:
        link.send_json(Message.HELLO, {"epoch": EPOCH, "continue": 0})
        link.send(*GOOD)
        while await link.receive() != (Message.ACKNOWLEDGEMENT, ACKNOWLEDGEMENT.pack(1)):
            pass
        followed[0].leading = EPOCH + 1
        link.send(Message.FRAME, frame(2))
        await link.drain()

    told: dict[str, object] = {"epoch": EPOCH, "format": FORMAT_VERSION}
    with pytest.raises(LinkError, match="it leads epoch 3, and 4 has begun"):
        follow(tmp_path, serve, told, followed)
    assert [path.name for path in tmp_path.glob("data/d*")] == ["d1"]
    # The copy is whole, and the next leader goes on with it.
    assert (followed[0].epoch, followed[0].number) == (EPOCH, 1)


def follow(root: Path, serve: object, told: dict[str, object], followed: list[Following] | None = None) -> None:
    """Let a node, which is added to a list, follow a leader that answers and sends what it should not."""

    async def within() -> None:
        done = asyncio.Event()

        async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            link = Link(reader, writer)
            try:
                wish = await accept(link, SECRET, False)
                answer(link, SECRET, wish, told)
                await link.drain()
                await serve(link)  # type: ignore[operator]
                while True:
                    # Until the node closes the link.
                    await link.receive()
            except (EOFError, OSError):
                pass
            finally:
                link.close()
                done.set()

        server = await asyncio.start_server(accepted, "127.0.0.1", 0)
        plan = Plan("b", root / "data", "h:1", SECRET, 2, Limits(1, 1, 0), 1 << 20)
        following = Following(plan, NodeRecord("nothing", EPOCH, 0), Backlog(root / "backlog", 1 << 20), NO_HOST)
        if followed is not None:
            followed.append(following)
        try:
            async with asyncio.timeout(60):
                await following.follow("127.0.0.1", server.sockets[0].getsockname()[1], EPOCH)
        finally:
            await following.abandon()
            async with asyncio.timeout(60):
                await done.wait()
            server.close()

    (root / "data").mkdir()
    asyncio.run(within())


def test_json_that_is_none_is_refused(tmp_path: Path) -> None:
    async def serve(link: Link) -> None:
        link.send(Message.HELLO, json.dumps([1]).encode())
        await link.drain()

    with pytest.raises(LinkError, match="is not a JSON object"):
        follow(tmp_path, serve, {"epoch": EPOCH, "format": FORMAT_VERSION})
